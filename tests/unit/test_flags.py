"""The command line: options, --set items, pasted characters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from source_findings import brief, everything, values

from kimi_serve.launcher.sources.flags import check_argv, read_flags
from kimi_serve.schemas.fields import setting_fields


def test_options_are_typed_and_remember_their_spelling() -> None:
    layer = read_flags(
        {
            "tokenizer__worker_num": " 16 ",
            "image__force_cpu_preprocessing": False,
            "model__trust_remote_code": True,
            "server__api_key": "hunter2",
            "log__level": "",
        }
    )
    assert layer.findings == ()
    assert {leaf.path: str(leaf.origin) for leaf in layer.leaves} == {
        "tokenizer.worker_num": "--tokenizer-worker-num",
        "image.force_cpu_preprocessing": "--no-force-cpu-image-preprocessing",
        "model.trust_remote_code": "--trust-remote-code",
        "server.api_key": "--api-key",
    }
    assert values(layer)["tokenizer.worker_num"] == 16
    assert "hunter2" not in repr(layer)


def test_all_wrong_options_are_reported() -> None:
    layer = read_flags({"tokenizer__worker_num": "2.5", "server__port": "x", "log__level": 7})
    assert brief(layer.findings) == [
        "KS104 error --tokenizer-worker-num",
        "KS104 error --port",
        "KS104 error --log-level",
    ]


def test_set_items_are_read_as_strictly_as_a_profile() -> None:
    layer = read_flags(
        {"tokenizer__worker_num": "2"},
        [
            "tokenizer.worker_num=4",
            "image.formats=[jpeg, png]",
            "engine.env={A: 'b=c'}",
            "model.revision=",
            "server.api_key={env: KEY}",
            "model.served_name=${NAME}",
        ],
        {"KEY": "hunter2", "NAME": "kimi"},
    )
    assert layer.findings == ()
    found = values(layer)
    assert str(found.pop("server.api_key")) == "**********"
    assert found == {
        "tokenizer.worker_num": 4,
        "image.formats": ("jpeg", "png"),
        "engine.env": {"A": "b=c"},
        "model.revision": None,
        "model.served_name": "kimi",
    }
    assert str(layer.leaves[1].origin) == "--set tokenizer.worker_num"


@pytest.mark.parametrize(
    ("item", "expected", "part"),
    [
        ("server.port='80'", "KS104 error --set server.port", "not the text '80'"),
        ("server.port=[", "KS001 error --set server.port", "not valid YAML"),
        ("server.port=", "KS104 error --set server.port", "has no value"),
        ("server.api_key=hunter2", "KS505 error --set server.api_key", "must not stand in --set"),
        ("server.api_key=*hunter2", "KS001 error --set server.api_key", "aliases"),
        ("server.api_key=!hunter2 x", "KS001 error --set server.api_key", "tags"),
        ("server.api_key='hunter2", "KS001 error --set server.api_key", "never closed"),
        ("tokenizer.wroker_num=1", "KS101 error --set item 1", "`tokenizer.worker_num`"),
        ("worker_num=1", "KS101 error --set item 1", "`tokenizer.worker_num`"),
        ("--port=1", "KS101 error --set item 1", "`server.port`"),
        ("server={}", "KS101 error --set item 1", "is a section"),
        ("hunter2", "KS104 error --set item 1", "PATH=VALUE"),
        ("=hunter2", "KS101 error --set item 1", "there is no setting"),
    ],
)
def test_wrong_set_items(item: str, expected: str, part: str) -> None:
    layer = read_flags({}, [item])
    assert expected in brief(layer.findings)
    assert part in everything(layer.findings)
    assert "hunter2" not in everything(layer.findings)


@pytest.mark.parametrize(
    ("argument", "flag", "odd"),
    [
        ("\u2013tokenizer-worker-num", "--tokenizer-worker-num", "U+2013 (en dash) at index 0"),
        ("\u2013\u2013tokenizer-worker-num", "--tokenizer-worker-num", "U+2013 (en dash)"),
        ("\u2014tokenizer-worker-num", "--tokenizer-worker-num", "U+2014 (em dash) at index 0"),
        ("-\u2013port=80", "--port", "U+2013 (en dash) at index 1"),
        ("--tokenizer\u2011worker\u2011num", "--tokenizer-worker-num", "U+2011"),
        ("--port\u00a080", "--port", "U+00A0 (no-break space) at index 6"),
        ("\u201c--port\u201d", "--port", "U+201C"),
        ("\u2013api-key=hunter2", "--api-key", "U+2013"),
        ("\u2013no-force-cpu-image-preprocessing", "--no-force-cpu-image-preprocessing", "U+2013"),
        ("\u2013hunter2", "argument 1", "U+2013"),
    ],
)
def test_l13_pasted_options(argument: str, flag: str, odd: str) -> None:
    findings = check_argv([argument, "4"])
    assert brief(findings) == [f"KS006 error {flag}"]
    assert odd in findings[0].message
    assert "hunter2" not in everything(findings)


def test_clean_arguments() -> None:
    clean = ["--port", "80", "--served-model-name=Kimi \u2013 K2", "\u2013 5", "", "-", "x\u00a0y"]
    assert check_argv([*clean, "--", "\u2013port"]) == ()


_FIELDS = [field.parameter for field in setting_fields().values()]
_ITEMS = st.one_of(
    st.text(max_size=30),
    st.tuples(st.sampled_from(sorted(setting_fields())), st.text(max_size=30)).map("=".join),
)


@given(
    st.dictionaries(st.sampled_from(_FIELDS), st.one_of(st.text(max_size=30), st.booleans())),
    st.lists(_ITEMS, max_size=4),
)
def test_any_flags_give_only_findings(given_flags: dict[str, str | bool], items: list[str]) -> None:
    given_flags["server__api_key"] = f"hunter2{given_flags.get('server__api_key', '')}"
    items = [*items, "server.api_key=hunter2 " + "".join(items)]
    layer = read_flags(given_flags, items)
    assert "hunter2" not in everything(layer.findings) + repr(layer)


@given(st.lists(st.text(max_size=20), max_size=5))
def test_any_argv_gives_only_findings(argv: list[str]) -> None:
    for finding in check_argv(argv):
        assert finding.rule == "KS006"
