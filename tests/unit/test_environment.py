"""Variables: our own, misspelt ones, Kubernetes service links, the engine's switch."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from source_findings import brief, everything, values

from kimi_serve.launcher.sources.environment import read_engine_environment, read_environment
from kimi_serve.schemas.fields import setting_fields

SWITCH = "SGLANG_FORCE_CPU_IMAGE_PREPROCESSING"
TWIN = "SGL_FORCE_CPU_IMAGE_PREPROCESSING"
PATH = "image.force_cpu_preprocessing"


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("KIMI_SERVE_TOKENIZER_WORKER_NUM", "KIMI_SERVE_TOKENIZER__WORKER_NUM"),
        ("KIMI_SERVE_TOKENIZER__WROKER_NUM", "KIMI_SERVE_TOKENIZER__WORKER_NUM"),
        ("kimi_serve_tokenizer__worker_num", "KIMI_SERVE_TOKENIZER__WORKER_NUM"),
        ("KIMI_SERVE_WORKER_NUM", "KIMI_SERVE_TOKENIZER__WORKER_NUM"),
        ("KIMI_SERVE_MODEL_PATH", "KIMI_SERVE_MODEL__PATH"),
        ("KIMI_SERVE_SERVER_PORT", "KIMI_SERVE_SERVER__PORT"),
        ("KIMI_SERVE_API_KEY", "KIMI_SERVE_SERVER__API_KEY"),
        ("KIMI_SERVE_FORCE_CPU_IMAGE_PREPROCESSING", "KIMI_SERVE_IMAGE__FORCE_CPU_PREPROCESSING"),
    ],
)
def test_l01_unknown_variable_with_suggestion(name: str, meant: str) -> None:
    layer = read_environment({name: "hunter2"})
    assert brief(layer.findings) == [f"KS102 error env {name}"]
    assert layer.findings[0].message.endswith(f"did you mean {meant}?")
    assert "hunter2" not in everything(layer.findings)


@pytest.mark.parametrize("name", ["KIMI_SERVE_ZZZ", "KIMI_SERVE_", "KIMI_SERVE_\udc80"])
def test_unknown_variable_without_suggestion(name: str) -> None:
    (found,) = read_environment({name: "1"}).findings
    assert found.rule == "KS102"
    str(found).encode()


def test_every_setting_is_read_from_its_variable() -> None:
    texts = {"bool": "1", "int": "20", "float": "0.5", "str": "white", "list": '["jpeg"]',
             "mapping": '{"A": "b"}', "secret": "key"}  # fmt: skip
    env = {
        field.env_name: field.choices[-1] if field.kind == "choice" else texts[field.kind]
        for field in setting_fields().values()
    }
    env |= {"KIMI_SERVE_ENGINE__VERSION": "0.5.23", "KIMI_SERVE_GPU__IDS": "[0]"}
    env |= {name: "1024" for name in env if name.endswith(("_BYTES", "_MIB"))}
    layer = read_environment(env)
    assert layer.findings == ()
    assert {leaf.path for leaf in layer.leaves} == set(setting_fields())
    assert all(str(leaf.origin).startswith("env KIMI_SERVE_") for leaf in layer.leaves)


LINKS = {
    "KIMI_SERVE_SERVICE_HOST": "10.0.0.7",
    "KIMI_SERVE_SERVICE_PORT": "8000",
    "KIMI_SERVE_SERVICE_PORT_HTTP": "8000",
    "KIMI_SERVE_PORT": "tcp://10.0.0.7:8000",
    "KIMI_SERVE_PORT_8000_TCP": "tcp://10.0.0.7:8000",
    "KIMI_SERVE_PORT_8000_TCP_PROTO": "tcp",
    "KIMI_SERVE_PORT_8000_TCP_PORT": "8000",
    "KIMI_SERVE_PORT_8000_TCP_ADDR": "10.0.0.7",
    "KIMI_SERVE_CANARY_SERVICE_HOST": "10.0.0.8",
    "KIMI_SERVE_CANARY_PORT": "tcp://10.0.0.8:8000",
}


def test_l02_service_links_are_quiet() -> None:
    assert read_environment(LINKS).findings == ()


def test_l02_only_with_the_host_of_their_service() -> None:
    alone = {"KIMI_SERVE_PORT": LINKS["KIMI_SERVE_PORT"]}
    assert brief(read_environment(alone).findings) == ["KS102 error env KIMI_SERVE_PORT"]
    typo = {**LINKS, "KIMI_SERVE_SERVER_PORT": "8000"}
    assert brief(read_environment(typo).findings) == ["KS102 error env KIMI_SERVE_SERVER_PORT"]
    by_hand = {**LINKS, "KIMI_SERVE_PORT": "8000"}
    assert brief(read_environment(by_hand).findings) == ["KS102 error env KIMI_SERVE_PORT"]


def test_names_that_other_commands_read_are_known() -> None:
    assert read_environment({"KIMI_SERVE_LINT_FORMAT": "json"}).findings == ()


def test_other_prefixes_and_empty_values_say_nothing() -> None:
    layer = read_environment({"PATH": "/bin", "KIMI_SERVER_X": "1", "KIMI_SERVE_LOG__LEVEL": ""})
    assert (layer.leaves, layer.findings) == ((), ())


def test_l13_pasted_characters() -> None:
    name = "KIMI_SERVE_IMAGE__FORCE_CPU_PREPROCESSING"
    layer = read_environment({name: "1\u00a0", "KIMI_SERVE_LOG\u200b__LEVEL": "info"})
    assert [found.rule for found in layer.findings] == ["KS006", "KS006"]
    assert layer.findings[0].message.endswith("'1\\xa0' holds U+00A0 (no-break space) at index 1")
    assert "U+200B" in layer.findings[1].message


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", True), ("TRUE", True), ("yes", True), ("Y", True),
        ("0", False), ("no", False), ("N", False),
    ],
)  # fmt: skip
def test_the_engines_switch_is_read_as_the_engine_reads_it(text: str, value: bool) -> None:
    layer = read_engine_environment({SWITCH: text})
    assert values(layer) == {PATH: value}
    assert layer.leaves[0].origin.kind == "engine-env"
    assert brief(layer.findings) == [f"KS109 info env {SWITCH}"]


@pytest.mark.parametrize("text", ["on", "off", " 1", "1 ", "t", "2", "enabled", "1\u00a0", " "])
def test_what_the_engine_would_misread_is_an_error(text: str) -> None:
    layer = read_engine_environment({SWITCH: text})
    assert layer.leaves == ()
    (found,) = layer.findings
    assert (found.rule, found.severity, found.path) == ("KS107", "error", PATH)
    assert repr(text) in found.message
    assert "GPU preprocessing" in found.message


def test_an_empty_switch_is_unset() -> None:
    layer = read_engine_environment({SWITCH: "", TWIN: ""})
    assert (layer.leaves, layer.findings) == ((), ())


def test_the_old_name_is_on_top_as_in_the_engine() -> None:
    layer = read_engine_environment({SWITCH: "0", TWIN: "1"})
    assert [(leaf.origin.name, leaf.value) for leaf in layer.leaves] == [
        (SWITCH, False),
        (TWIN, True),
    ]
    assert brief(layer.findings) == [f"KS109 info env {SWITCH}", f"KS109 warning env {TWIN}"]


_NAMES = st.one_of(
    st.sampled_from([field.env_name for field in setting_fields().values()] + [SWITCH, TWIN]),
    st.text(max_size=20).map(lambda tail: f"KIMI_SERVE_{tail}"),
    st.text(max_size=20),
)


@given(st.dictionaries(_NAMES, st.text(max_size=30), max_size=8))
def test_any_environment_gives_only_findings(env: dict[str, str]) -> None:
    env["KIMI_SERVE_SERVER__API_KEY"] = "hunter2" + env.get("KIMI_SERVE_SERVER__API_KEY", "")
    for layer in (read_environment(env), read_engine_environment(env)):
        assert "hunter2" not in everything(layer.findings) + repr(layer)
