"""Profiles: sections, strict types, references, parents, positions."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr
from source_findings import brief, everything, read_text, values

from kimi_serve.launcher.sources.profile import read_profile, read_profile_text, read_profiles
from kimi_serve.schemas.fields import setting_fields


def test_l03_misspelt_key() -> None:
    layer = read_text("model: {path: org/vision-model}\ntokenizer:\n  wroker_num: 8\n")
    assert brief(layer.findings) == ["KS101 error p.yaml:3:3"]
    assert layer.findings[0].message == (
        "unknown key `wroker_num` in `tokenizer`; did you mean `worker_num`?"
    )
    assert layer.findings[0].origin.end_column == 13


def test_l04_empty_section() -> None:
    layer = read_text("model: {path: org/vision-model}\nserver:\n")
    assert brief(layer.findings) == ["KS106 error p.yaml:2:1"]
    assert "is empty" in layer.findings[0].message


def test_l05_words_that_change_type() -> None:
    layer = read_text(
        "model: {path: org/vision-model, trust_remote_code: on}\n"
        "server: {port: 1:20}\n"
        "tokenizer: {worker_num: 010}\n"
    )
    assert brief(layer.findings) == [
        "KS005 warning p.yaml:1:52",
        "KS005 error p.yaml:2:16",
        "KS005 error p.yaml:3:25",
    ]
    assert values(layer) == {"model.path": "org/vision-model", "model.trust_remote_code": True}


def test_l09_literal_secret() -> None:
    layer = read_text(
        "model: {path: org/vision-model}\nserver: {api_key: sk-EXAMPLEEXAMPLEEXAMPLE}\n"
    )
    assert brief(layer.findings) == ["KS505 error p.yaml:2:19"]
    assert "EXAMPLE" not in everything(layer.findings) + repr(layer)


@pytest.mark.parametrize(
    ("text", "expected", "path"),
    [
        # The kinds of ../shared/cases/configs, on our keys.
        ("image: {force_cpu_preprocessing: off}", ["KS005 warning p.yaml:1:34"], None),
        ("log: {level: off}", ["KS005 error p.yaml:1:14"], "log.level"),
        ("media: {allowed_domains: [kimi, no]}", ["KS005 error p.yaml:1:33"], None),
        ("media: {allowed_domains: [false]}", ["KS104 error p.yaml:1:27"], None),
        ('server: {port: "8080"}', ["KS104 error p.yaml:1:16"], "server.port"),
        ("server: {port: 08080}", ["KS005 error p.yaml:1:16"], "server.port"),
        ("server: {port: true}", ["KS104 error p.yaml:1:16"], "server.port"),
        ("tokenizer: {worker_num: 2.5}", ["KS104 error p.yaml:1:25"], None),
        ("tokenizer: {worker_num: 1e1}", ["KS005 error p.yaml:1:25"], None),
        ("gpu: {mem_fraction_static: 1e-1}", ["KS005 warning p.yaml:1:28"], None),
        ("image:\n  max_pixel: 1\n", ["KS101 error p.yaml:2:3"], "image.max_pixel"),
        ("log: {level: info}\nlog: {level: debug}", ["KS003 error p.yaml:2:1"], "log"),
        ("model: {trust_remote_code: false}", [], None),
        ("tokenizer:\n  worker_num:\n", ["KS104 error p.yaml:2:3"], "tokenizer.worker_num"),
        ("tokenizer: {worker_num: ~}", ["KS104 error p.yaml:1:25"], None),
        ("", [], None),
        ("# nothing\n", [], None),
        ("image:\n\tmax_pixels: 1\n", ["KS001 error p.yaml:2:1"], ""),
        ("server: {port: !!python/object/apply:os.getpid []}", ["KS001 error p.yaml:1:16"], ""),
        ("image: {max_pixels: 99999999999999999999}", ["KS104 error p.yaml:1:21"], None),
        (f"image: {{max_pixels: {'9' * 5000}}}", ["KS104 error p.yaml:1:21"], None),
        ("tokenizer: {worker_num: 0}", ["KS104 error p.yaml:1:25"], "tokenizer.worker_num"),
        # Shapes.
        ("- a\n", ["KS002 error p.yaml:1:1"], ""),
        ("text\n", ["KS002 error p.yaml:1:1"], ""),
        ("server: 5", ["KS104 error p.yaml:1:9"], "server"),
        ("server: []", ["KS104 error p.yaml:1:9"], "server"),
        ("server: {}", [], None),
        ("server: {port: [80]}", ["KS104 error p.yaml:1:16"], "server.port"),
        ("image: {formats: jpeg}", ["KS104 error p.yaml:1:18"], "image.formats"),
        ("image: {formats: [jpeg, pmg]}", ["KS104 error p.yaml:1:25"], "image.formats"),
        ("image: {formats: []}", ["KS104 error p.yaml:1:18"], "image.formats"),
        ("gpu: {ids: [0, '1']}", ["KS005 error p.yaml:1:13"], "gpu.ids"),
        ("gpu: {ids: [[0]]}", ["KS104 error p.yaml:1:13"], "gpu.ids"),
        ("engine: {version: 0.10}", ["KS005 error p.yaml:1:19"], "engine.version"),
        ("engine: {version: 0.5.23}", [], None),
        ("engine: {kind: null}", ["KS104 error p.yaml:1:16"], "engine.kind"),
        ("engine: {env: {A: 1}}", ["KS005 error p.yaml:1:19"], "engine.env"),
        ("engine: {env: {on: '1'}}", ["KS005 error p.yaml:1:16"], "engine.env"),
        ("engine: {env: [A]}", ["KS104 error p.yaml:1:15"], "engine.env"),
        ("engine: {env: {A: a, A: b}}", ["KS003 error p.yaml:1:22"], "engine.env"),
        ('image: {force_cpu_preprocessing: "true"}', ["KS104 error p.yaml:1:34"], None),
        ("image: {force_cpu_preprocessing: 1}", ["KS104 error p.yaml:1:34"], None),
        ("media: {timeout_s: 0}", ["KS104 error p.yaml:1:20"], "media.timeout_s"),
        ("media: {timeout_s: .nan}", ["KS104 error p.yaml:1:20"], "media.timeout_s"),
        ("media: {allowed_local_dirs: ['']}", ["KS104 error p.yaml:1:30"], None),
        ("server: {\u00a0port: 80}", ["KS006 error p.yaml:1:10"], None),
        ("server: {port: 80\u00a0}", ["KS006 error p.yaml:1:16"], "server.port"),
        ("model: {served_name: \u201cx\u201d}", ["KS006 error p.yaml:1:22"], "model.served_name"),
        ("image: {background: mauve}", ["KS104 error p.yaml:1:21"], "image.background"),
    ],
)
def test_findings_of(text: str, expected: list[str], path: str | None) -> None:
    layer = read_text(text)
    assert brief(layer.findings) == expected
    if path is not None:
        assert [found.path for found in layer.findings] == [path]
    assert "pydantic" not in everything(layer.findings)


@pytest.mark.parametrize(
    ("text", "said", "help"),
    [
        ("server: {port: '8080'}", "not the text '8080'", "remove the quotes: 8080"),
        ("log: {level: off}", "`log.level` must be one of debug", 'in quotes: "debug"'),
        ("log: {level: inof}", "not 'inof'", "did you mean info?"),
        (
            "model: {served_name: no}",
            "a boolean to some readers",
            'put it in quotes if it is meant: "no"',
        ),
        ("model: {served_name: 123}", "without quotes is a number", '"123"'),
        ("server: {port: '${PORT}'}", "not the text '${PORT}'", "KIMI_SERVE_SERVER__PORT"),
        (
            "server: {port: 70000}",
            "`server.port` must be a whole number from 0 to 65535, not 70000",
            "",
        ),
        ("wroker_num: 4", "did you mean `worker_num` under `tokenizer`?", "sections are model"),
        ("worker_num: 4", "`worker_num` belongs under `tokenizer`", ""),
        ("image: {worker_num: 4}", "`worker_num` belongs under `tokenizer`", ""),
        ("tokenizer: {worker-num: 4}", "did you mean `worker_num`?", ""),
        ("tokenizer: {Worker_Num: 4}", "did you mean `worker_num`?", ""),
        ("Tokenizer: {worker_num: 4}", "did you mean `tokenizer`?", ""),
        ("tokenizer-worker-num: 4", "write `worker_num` under `tokenizer`", ""),
        ("--tokenizer-worker-num: 4", "write `worker_num` under `tokenizer`", ""),
        (
            "no-force-cpu-image-preprocessing: 4",
            "write `force_cpu_preprocessing` under `image`, which means the opposite",
            "",
        ),
        ("tokenizer.worker_num: 4", "write `worker_num` under `tokenizer`", ""),
        ("KIMI_SERVE_TOKENIZER__WORKER_NUM: 4", "write `worker_num` under `tokenizer`", ""),
        (
            "SGLANG_FORCE_CPU_IMAGE_PREPROCESSING: 1",
            "write `force_cpu_preprocessing` under `image`",
            "",
        ),
        ("port: 80", "`port` belongs under `server`", ""),
        ("servr: {port: 80}", "did you mean `server`?", ""),
        ("server: {port:80}", "a space is missing after `port:`", ""),
        ("qqqqqqq: 1", "unknown key `qqqqqqq`", ""),
    ],
)
def test_words_of(text: str, said: str, help: str) -> None:
    (found,) = read_text(text).findings
    assert said in found.message
    assert help in (found.help or "")


def test_both_halves_of_a_repeated_section_are_checked() -> None:
    layer = read_text("server: {port: abc, prot: 1}\nserver: {host: h, port: 80, port: 81}\n")
    assert brief(layer.findings) == [
        "KS104 error p.yaml:1:16",
        "KS101 error p.yaml:1:21",
        "KS003 error p.yaml:2:1",
        "KS003 error p.yaml:2:29",
    ]
    assert [str(place) for found in layer.findings for place in found.related] == [
        "p.yaml:1:1",
        "p.yaml:2:19",
    ]


def test_null_on_a_nullable_setting_is_a_value() -> None:
    layer = read_text("model: {revision: null}\ngpu:\n  ids:\n")
    assert layer.findings == ()
    assert values(layer) == {"model.revision": None, "gpu.ids": None}
    assert [str(leaf.origin) for leaf in layer.leaves] == ["p.yaml:1:19", "p.yaml:3:3"]


def test_references_are_expanded_from_the_given_environment_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KIMI_TEST_DIR", "/wrong")
    text = "model:\n  path: ${KIMI_TEST_DIR}/kimi\n  served_name: '$${KIMI_TEST_DIR} $x'\n"
    layer = read_text(text, {"KIMI_TEST_DIR": "/models"})
    assert layer.findings == ()
    assert values(layer) == {
        "model.path": "/models/kimi",
        "model.served_name": "${KIMI_TEST_DIR} $x",
    }
    assert layer.leaves[0].raw == "${KIMI_TEST_DIR}/kimi"
    for env in ({}, {"KIMI_TEST_DIR": ""}):
        layer = read_text(text, env)
        assert brief(layer.findings) == ["KS104 error p.yaml:2:9"]
        assert "KIMI_TEST_DIR" in layer.findings[0].message


@pytest.mark.parametrize("text", ["${", "a${B:-c}", "${1}", "${A B}"])
def test_a_broken_reference_is_never_taken_literally(text: str) -> None:
    layer = read_text(f"model: {{served_name: '{text}'}}", {"B": "b"})
    assert brief(layer.findings) == ["KS104 error p.yaml:1:22"]


def test_references_in_lists_choices_and_mappings() -> None:
    text = 'media: {allowed_domains: ["${H}"]}\nlog: {level: "${L}"}\nengine: {env: {A: "${H}"}}\n'
    layer = read_text(text, {"H": "img.example.org", "L": "debug"})
    assert values(layer) == {
        "media.allowed_domains": ("img.example.org",),
        "log.level": "debug",
        "engine.env": {"A": "img.example.org"},
    }


def test_without_an_environment_references_are_checked_in_form_only() -> None:
    text = (
        'model: {path: "${M}/k", revision: "${"}\n'
        "server: {api_key: {env: KIMI_KEY}}\n"
        "media: {allowed_domains: ['${H}', no]}\n"
    )
    (layer,) = read_profile_text(text, "p.yaml", "/deploy", None)
    assert brief(layer.findings) == ["KS104 error p.yaml:1:35", "KS005 error p.yaml:3:35"]


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "beside" / "inner").mkdir(parents=True)
    text = (
        "model: {path: %s, tokenizer_path: %s}\n"
        "engine: {python: ./venv/bin/python}\n"
        "media: {allowed_local_dirs: [images, /data, ~/pictures]}\n"
    )
    here = str(tmp_path)
    cases = {
        "./model": f"{here}/model",
        "../model": f"{tmp_path.parent}/model",
        "moonshotai/Kimi-K2.5": "moonshotai/Kimi-K2.5",
        "Kimi-K2.5": "Kimi-K2.5",
        "beside": f"{here}/beside",
        "beside/inner": f"{here}/beside/inner",
        "a/b/c": f"{here}/a/b/c",
        "/abs/model": "/abs/model",
        "~/model": "/home/kimi/model",
        "my model": f"{here}/my model",
    }
    for written, expected in cases.items():
        layer = read_text(text % (written, "x"), {"HOME": "/home/kimi"}, here)
        assert layer.findings == ()
        found = values(layer)
        assert found["model.path"] == expected
        assert found["engine.python"] == f"{here}/venv/bin/python"
        assert found["media.allowed_local_dirs"] == (
            f"{here}/images",
            "/data",
            "/home/kimi/pictures",
        )
    (refused,) = read_text("model: {path: ~nobody-of-that-name/x}").findings
    assert "home directory" in refused.message


def test_secrets_come_from_variables_and_files(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"se same\r\n")
    for text in ("{env: KEY}", "{file: key}", "{file: ./key}", f"{{file: {tmp_path}/key}}"):
        layer = read_text(f"server: {{api_key: {text}}}", {"KEY": " se same\n"}, str(tmp_path))
        assert layer.findings == ()
        assert values(layer) == {"server.api_key": SecretStr("se same")}
        assert layer.leaves[0].raw == "***"
    assert values(read_text("server: {api_key: null}")) == {"server.api_key": None}


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        ("hunter2", "KS505"),
        ("'${KEY}'", "KS505"),
        ("[hunter2]", "KS505"),
        ("{hunter2: x}", "KS505"),
        ("{env: A, hunter2: B}", "KS505"),
        ("{hunter2: 1, hunter2: 2}", "KS505"),
        ("{env: [hunter2]}", "KS505"),
        ("12345678", "KS505"),
        ("{env: 12345678}", "KS505"),
        ("{env: hunter2}", "KS104"),
        ("{env: UNSET_NAME}", "KS104"),
        ("{env: EMPTY}", "KS104"),
        ("{env: PASTED}", "KS006"),
        ("{file: hunter2}", "KS104"),
        ("{file: 'hunter2\\0'}", "KS104"),
        ("{file: missing/key}", "KS104"),
        ("{file: /}", "KS104"),
        ("{file: empty}", "KS104"),
        ("{file: binary}", "KS104"),
        ("{file: lines}", "KS006"),
        ("{file: huge}", "KS104"),
        ('{file: "hunter2\\0"}', "KS104"),
    ],
)
def test_a_secret_is_refused_without_being_shown(tmp_path: Path, value: str, rule: str) -> None:
    (tmp_path / "empty").write_bytes(b"\n")
    (tmp_path / "binary").write_bytes(b"hunter2\xff")
    (tmp_path / "lines").write_bytes(b"hunter2\nhunter2\n")
    (tmp_path / "huge").write_bytes(b"hunter2" * 20_000)
    env = {"KEY": "hunter2", "EMPTY": "", "PASTED": "hunter2\u00a0"}
    layer = read_text(f"server: {{api_key: {value}}}", env, str(tmp_path))
    (found,) = layer.findings
    assert (found.rule, str(found.origin)) == (rule, "p.yaml:1:19")
    assert "hunter2" not in everything(layer.findings) + repr(layer)
    assert "12345678" not in everything(layer.findings)


def test_extends_puts_parents_below(tmp_path: Path) -> None:
    (tmp_path / "common").mkdir()
    (tmp_path / "common" / "base.yaml").write_text("server: {port: 1}\nmodel: {path: ./m}\n")
    (tmp_path / "gpu.yaml").write_text("extends: common/base.yaml\nserver: {port: 2}\n")
    (tmp_path / "log.yaml").write_text("extends: ./common/base.yaml\nlog: {level: debug}\n")
    child = tmp_path / "prod.yaml"
    child.write_text("extends: [gpu.yaml, log.yaml]\ntokenizer: {worker_num: 3}\n")
    layers = read_profile(child, {})
    assert [Path(layer.name).name for layer in layers] == [
        "base.yaml",
        "gpu.yaml",
        "log.yaml",
        "prod.yaml",
    ]
    assert all(layer.findings == () for layer in layers)
    assert values(layers[0])["model.path"] == str(tmp_path / "common" / "m")
    assert [leaf.path for leaf in layers[-1].leaves] == ["tokenizer.worker_num"]


def test_names_of_parents_stay_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "deploy").mkdir()
    (tmp_path / "base.yaml").write_text("server: {port: abc}\n")
    (tmp_path / "deploy" / "prod.yaml").write_text("extends: ../base.yaml\n")
    monkeypatch.chdir(tmp_path)
    layers = read_profile("deploy/prod.yaml", {})
    assert [layer.name for layer in layers] == ["base.yaml", "deploy/prod.yaml"]
    assert brief(layers[0].findings) == ["KS104 error base.yaml:1:16"]


def test_an_explicitly_named_profile_is_a_layer_even_after_it_was_a_parent(tmp_path: Path) -> None:
    base, child = tmp_path / "base.yaml", tmp_path / "child.yaml"
    base.write_text("server: {port: 1}\n")
    child.write_text("extends: base.yaml\nserver: {port: 2}\n")
    names = [Path(layer.name).name for layer in read_profiles([child, base], {})]
    assert names == ["base.yaml", "child.yaml", "base.yaml"]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("extends: missing.yaml\n", "1:10"),
        ("extends: [a.yaml, missing.yaml]\n", "1:19"),
        ("extends: self.yaml\n", "1:10"),
        ("extends: .\n", "1:10"),
        ("extends: 5\n", "1:10"),
        ("extends:\n", "1:9"),
        ("extends: {a: b}\n", "1:10"),
        ("extends: ['']\n", "1:11"),
        ('extends: "a\\0b"\n', "1:10"),
        ("extends: ~nobody-of-that-name/x\n", "1:10"),
    ],
)
def test_broken_extends(tmp_path: Path, text: str, place: str) -> None:
    (tmp_path / "a.yaml").write_text("")
    path = tmp_path / "self.yaml"
    path.write_text(text + "server: {port: 1}\n")
    layer = read_profile(path, {})[-1]
    assert brief(layer.findings) == [f"KS004 error {path}:{place}"]
    assert values(layer) == {"server.port": 1}


def test_a_cycle_is_an_error_where_it_closes(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("extends: b.yaml\n")
    (tmp_path / "b.yaml").write_text("extends: c.yaml\n")
    (tmp_path / "c.yaml").write_text("extends: a.yaml\n")
    layers = read_profile(tmp_path / "a.yaml", {})
    found = [finding for layer in layers for finding in layer.findings]
    assert brief(found) == [f"KS004 error {tmp_path}/c.yaml:1:10"]


def test_a_long_chain_ends_in_an_error(tmp_path: Path) -> None:
    for index in range(60):
        (tmp_path / f"{index}.yaml").write_text(f"extends: '{index + 1}.yaml'\n")
    (tmp_path / "60.yaml").write_text("")
    found = [f for layer in read_profile(tmp_path / "0.yaml", {}) for f in layer.findings]
    assert [finding.rule for finding in found] == ["KS004"]


def test_a_profile_that_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.yaml", tmp_path, "a\0b"):
        (layer,) = read_profile(path, {})
        (found,) = layer.findings
        assert (found.rule, found.severity, found.origin.line) == ("KS403", "error", None)


_WORDS = st.sampled_from(
    ["on", "no", "010", "1:20", "true", "null", "~", "", "1e3", "'8'", "[a, b]", "{a: b}",
     "hunter2", "[]", "{}", "-1", "1.5", "${A}", "'${A}'", "'${'", "*x", "&x y", "!t z",
     "\u00a0", "[1, [2]]",
     "{env: hunter2}", "{file: hunter2}", "{env: A}", "'a\nb'", '"\\0"', "~x", "./a", "a/b/c",
     "|\n x"]
)  # fmt: skip


@given(
    st.lists(st.tuples(st.sampled_from(sorted(setting_fields())), _WORDS), max_size=6),
    st.text(max_size=20),
)
def test_any_profile_gives_only_findings_and_no_secret(
    settings: list[tuple[str, str]], tail: str
) -> None:
    lines = [f"{path.split('.')[0]}: {{{path.split('.')[1]}: {word}}}" for path, word in settings]
    text = "\n".join(
        [*(line for line in lines if "hunter2" not in line or "api_key" in line), tail]
    )
    layer = read_text(text, {"A": "hunter2"})
    secret = [leaf for leaf in layer.leaves if leaf.path == "server.api_key"]
    about = [found for found in layer.findings if found.path.startswith("server.api_key")]
    assert "hunter2" not in repr(secret) + everything(about)


@given(st.one_of(st.text(max_size=80), st.binary(max_size=80)))
def test_any_bytes_give_only_findings(data: str | bytes) -> None:
    read_text(data)
