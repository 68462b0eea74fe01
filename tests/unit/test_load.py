"""Loading: all findings at once, values ready for JSON, secrets nowhere, light imports."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from source_findings import brief, everything

from kimi_serve.launcher.sources.load import load_settings, read_layers
from kimi_serve.schemas.errors import ConfigError
from kimi_serve.schemas.fields import setting_fields
from kimi_serve.schemas.provenance import DEFAULT
from kimi_serve.schemas.settings import Settings

SECRET = "hunter2-0123456789"


def test_nothing_gives_the_defaults() -> None:
    loaded = load_settings()
    assert loaded.settings == Settings()
    assert loaded.findings == ()
    assert [value.path for value in loaded.values] == list(setting_fields())
    assert all(value.origin == DEFAULT and value.overrode == () for value in loaded.values)
    json.dumps([value.value for value in loaded.values])


def test_l12_a_wrong_value_is_reported_though_it_is_shadowed(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text("server: {port: abc}\n")
    with pytest.raises(ConfigError) as caught:
        load_settings([path], {"KIMI_SERVE_SERVER__PORT": "9000"})
    assert brief(caught.value.findings) == [f"KS104 error {path}:1:16"]


def test_all_findings_of_all_layers_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("base.yaml").write_text("log: {level: off}\n")
    Path("p.yaml").write_text(
        "extends: base.yaml\n"
        "model: {trust_remote_code: on}\n"
        "server: {port: 70000, prot: 1}\n"
        "server: {host: h}\n"
        "tokenizer:\n"
    )
    env = {
        "KIMI_SERVE_TOKENIZER_WORKER_NUM": "16",
        "KIMI_SERVE_IMAGE__MAX_PIXELS": "many",
        "SGLANG_FORCE_CPU_IMAGE_PREPROCESSING": "on",
    }
    with pytest.raises(ConfigError) as caught:
        load_settings(["p.yaml"], env, {"server__port": "x"}, ["nope=1"])
    assert brief(caught.value.findings) == [
        "KS005 error base.yaml:1:14",
        "KS005 warning p.yaml:2:28",
        "KS104 error p.yaml:3:16",
        "KS101 error p.yaml:3:23",
        "KS003 error p.yaml:4:1",
        "KS106 error p.yaml:5:1",
        "KS107 error env SGLANG_FORCE_CPU_IMAGE_PREPROCESSING",
        "KS104 error env KIMI_SERVE_IMAGE__MAX_PIXELS",
        "KS102 error env KIMI_SERVE_TOKENIZER_WORKER_NUM",
        "KS104 error --port",
        "KS101 error --set item 1",
    ]
    assert caught.value.message == "10 errors in the configuration"


def test_warnings_do_not_stop_a_load(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text("model: {trust_remote_code: yes}\n")
    loaded = load_settings([path], {"SGLANG_FORCE_CPU_IMAGE_PREPROCESSING": "1"})
    assert loaded.settings.model.trust_remote_code is True
    assert loaded.settings.image.force_cpu_preprocessing is True
    assert [found.severity for found in loaded.findings] == ["warning", "info"]


def test_values_are_ready_for_json(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text("image: {formats: [png]}\nengine: {env: {A: b}}\nserver: {api_key: {env: K}}\n")
    loaded = load_settings([path], {"K": SECRET}, {"server__api_key": SECRET})
    found = {value.path: value for value in loaded.values}
    assert found["image.formats"].value == ["png"]
    assert found["image.formats"].overrode == ((DEFAULT, ["jpeg", "png", "webp", "gif"]),)
    assert found["engine.env"].value == {"A": "b"}
    assert found["server.api_key"].value == "***"
    assert [value for _, value in found["server.api_key"].overrode] == ["***", None]
    key = loaded.settings.server.api_key
    assert key is not None
    assert key.get_secret_value() == SECRET
    json.dumps([[low for _, low in value.overrode] for value in loaded.values])


Shape = tuple[list[Path], dict[str, str], dict[str, object], list[str]]


def _shapes(tmp_path: Path) -> list[Shape]:
    """List ways to give the secret, right and wrong."""
    (tmp_path / "key").write_text(SECRET + "\n")
    texts = [
        "{env: K}", "{file: key}", SECRET, f"'{SECRET}", f"[{SECRET}]", f"{{{SECRET}: 1}}",
        f"*{SECRET}", f"!{SECRET} x", f"&{SECRET} x", f"{{env: {SECRET}}}",
        f"{{file: {SECRET}}}", f"a: {SECRET}", f"{{env: K, env: {SECRET}}}", f"\u00a0{SECRET}",
        f"@{SECRET}",
    ]  # fmt: skip
    shapes: list[Shape] = []
    for index, text in enumerate(texts):
        path = tmp_path / f"{index}.yaml"
        path.write_text(f"server:\n  api_key: {text}\n", encoding="utf-8")
        shapes.append(([path], {"K": SECRET}, {}, []))
        shapes.append(([], {"K": SECRET}, {}, [f"server.api_key={text}"]))
    others: list[Shape] = [
        ([], {"KIMI_SERVE_SERVER__API_KEY": SECRET}, {}, []),
        ([], {"KIMI_SERVE_SERVER__API_KEY": f"{SECRET}\u200b"}, {}, []),
        ([], {"KIMI_SERVE_SERVER_API_KEY": SECRET}, {}, []),
        ([], {}, {"server__api_key": SECRET}, []),
        ([], {}, {"server__api_key": f"{SECRET}\udc80"}, []),
        ([], {}, {}, [SECRET]),
        ([], {}, {}, [f"server.apikey={SECRET}"]),
    ]
    return shapes + others


def test_a_secret_is_nowhere(tmp_path: Path) -> None:
    outcomes = {"loaded": 0, "refused": 0}
    for shape in _shapes(tmp_path):
        layers = read_layers(*shape)
        said = repr(layers) + everything(layers.findings)
        try:
            loaded = load_settings(*shape)
        except ConfigError as error:
            outcomes["refused"] += 1
            said += f"{error!r} {error} {error.hint} {everything(error.findings)}"
        else:
            outcomes["loaded"] += 1
            said += f"{loaded!r} {loaded.settings.model_dump_json()}"
        assert SECRET not in said, shape
    assert min(outcomes.values()) > 2


def test_layers_without_an_environment_look_nothing_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KIMI_SERVE_SERVER__PROT", "1")
    path = tmp_path / "p.yaml"
    path.write_text("model: {path: '${DIR}/k'}\nserver: {api_key: {file: /missing}}\n")
    assert read_layers([path]).findings == ()


def test_a_missing_profile_is_an_error_that_names_it() -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(["/missing/p.yaml"])
    assert brief(caught.value.findings) == ["KS403 error /missing/p.yaml"]


def test_a_file_that_is_named_twice_says_everything_once(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text("server: {port: abc}\n")
    assert len(read_layers([path, path]).findings) == 1


def test_loading_imports_nothing_heavy() -> None:
    code = (
        "import sys; import kimi_serve.launcher.sources.load; "
        "print([name for name in ('numpy', 'fastapi', 'torch', 'PIL', 'pydantic_settings')"
        " if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


_ENV_NAMES = st.sampled_from([field.env_name for field in setting_fields().values()])
_TEXTS = st.one_of(
    st.text(max_size=20), st.sampled_from(["1", "on", "[]", "{}", "1e3", "a,b", " ", "null"])
)


@given(
    st.dictionaries(_ENV_NAMES, _TEXTS, max_size=5),
    st.dictionaries(
        st.sampled_from([field.parameter for field in setting_fields().values()]),
        _TEXTS,
        max_size=5,
    ),
    st.lists(
        st.tuples(st.sampled_from(sorted(setting_fields())), _TEXTS).map("=".join), max_size=5
    ),
)
def test_any_input_loads_or_is_a_config_error(
    env: dict[str, str], flags: dict[str, Any], items: list[str]
) -> None:
    try:
        loaded = load_settings([], env, flags, items)
    except ConfigError as error:
        findings = error.findings
        is_loaded = False
    else:
        findings = loaded.findings
        is_loaded = True
        json.dumps([value.value for value in loaded.values])
    assert is_loaded == all(found.severity != "error" for found in findings)
