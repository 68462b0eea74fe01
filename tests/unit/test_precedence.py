"""One test for each neighbouring pair of layers, and for what beats what by being explicit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kimi_serve.launcher.sources.load import load_settings
from kimi_serve.schemas.plan import SettingValue

PORT = "server.port"
FORCE = "image.force_cpu_preprocessing"
SWITCH = "SGLANG_FORCE_CPU_IMAGE_PREPROCESSING"
TWIN = "SGL_FORCE_CPU_IMAGE_PREPROCESSING"
FORCE_ENV = "KIMI_SERVE_IMAGE__FORCE_CPU_PREPROCESSING"
FORCE_FLAG = "image__force_cpu_preprocessing"


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    texts = {
        "parent": "server: {port: 1}\nimage: {force_cpu_preprocessing: true}\n",
        "child": "extends: parent.yaml\nserver: {port: 2}\n",
        "other": "server: {port: 3}\n",
        "off": "image: {force_cpu_preprocessing: false}\n",
    }
    paths = {name: tmp_path / f"{name}.yaml" for name in texts}
    for name, text in texts.items():
        paths[name].write_text(text)
    return paths


def value(path: str, *args: Any, **kwargs: Any) -> SettingValue:
    loaded = load_settings(*args, **kwargs)
    return next(value for value in loaded.values if value.path == path)


def history(found: SettingValue) -> list[tuple[str, Any]]:
    """Give the origins by their last name, and the values, winner first."""
    places = [(found.origin, found.value), *found.overrode]
    return [(str(origin).rpartition("/")[2], value) for origin, value in places]


def test_profile_over_default(files: dict[str, Path]) -> None:
    assert history(value(PORT, [files["other"]])) == [("other.yaml:1:16", 3), ("default", 30000)]


def test_child_over_parent(files: dict[str, Path]) -> None:
    assert history(value(PORT, [files["child"]])) == [
        ("child.yaml:2:16", 2),
        ("parent.yaml:1:16", 1),
        ("default", 30000),
    ]


def test_later_profile_over_earlier(files: dict[str, Path]) -> None:
    found = value(PORT, [files["child"], files["other"]])
    assert [number for _, number in history(found)] == [3, 2, 1, 30000]
    found = value(PORT, [files["other"], files["child"]])
    assert [number for _, number in history(found)] == [2, 1, 3, 30000]


def test_later_profile_turns_a_flag_off(files: dict[str, Path]) -> None:
    found = value(FORCE, [files["parent"], files["off"]])
    assert (found.value, history(found)[0][0]) == (False, "off.yaml:1:34")


def test_engine_switch_over_profile(files: dict[str, Path]) -> None:
    found = value(FORCE, [files["parent"]], {SWITCH: "0"})
    assert history(found) == [
        (f"env {SWITCH}", False),
        ("parent.yaml:2:34", True),
        ("default", False),
    ]


def test_old_engine_switch_over_new(files: dict[str, Path]) -> None:
    found = value(FORCE, [], {SWITCH: "0", TWIN: "1"})
    assert history(found)[:2] == [(f"env {TWIN}", True), (f"env {SWITCH}", False)]


def test_environment_over_engine_switch() -> None:
    found = value(FORCE, [], {SWITCH: "1", FORCE_ENV: "off"})
    assert history(found) == [
        (f"env {FORCE_ENV}", False),
        (f"env {SWITCH}", True),
        ("default", False),
    ]


def test_flag_over_environment() -> None:
    found = value(FORCE, [], {FORCE_ENV: "1"}, {FORCE_FLAG: False})
    assert history(found)[:2] == [
        ("--no-force-cpu-image-preprocessing", False),
        (f"env {FORCE_ENV}", True),
    ]


def test_set_item_over_flag() -> None:
    found = value(PORT, [], {}, {"server__port": "5"}, ["server.port=6"])
    assert history(found) == [("--set server.port", 6), ("--port", 5), ("default", 30000)]


def test_a_flag_equal_to_the_default_wins(files: dict[str, Path]) -> None:
    env = {"KIMI_SERVE_SERVER__PORT": "4"}
    found = value(PORT, [files["child"]], env, {"server__port": "30000"})
    assert history(found) == [
        ("--port", 30000),
        ("env KIMI_SERVE_SERVER__PORT", 4),
        ("child.yaml:2:16", 2),
        ("parent.yaml:1:16", 1),
        ("default", 30000),
    ]


def test_no_flag_beats_a_true_profile(files: dict[str, Path]) -> None:
    found = value(FORCE, [files["parent"]], {}, {FORCE_FLAG: False})
    assert (found.value, found.overrode[0][1]) == (False, True)


def test_an_explicit_null_beats_a_lower_value(tmp_path: Path) -> None:
    low, high = tmp_path / "low.yaml", tmp_path / "high.yaml"
    low.write_text("model: {revision: main}\n")
    high.write_text("model: {revision: null}\n")
    assert value("model.revision", [low, high]).value is None


def test_an_empty_variable_beats_nothing(files: dict[str, Path]) -> None:
    found = value(PORT, [files["other"]], {"KIMI_SERVE_SERVER__PORT": ""})
    assert found.value == 3


def test_lists_and_mappings_are_replaced_whole(tmp_path: Path) -> None:
    low, high = tmp_path / "low.yaml", tmp_path / "high.yaml"
    low.write_text("engine: {env: {A: a, B: b}, args: [--x]}\n")
    high.write_text("engine: {env: {B: c}, args: []}\n")
    loaded = load_settings([low, high])
    assert loaded.settings.engine.env == {"B": "c"}
    assert loaded.settings.engine.args == ()
