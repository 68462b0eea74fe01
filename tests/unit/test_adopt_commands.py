"""Public commands of engines become profiles: readable, judged alike, and of the same meaning."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from adopted import adopt_words, assert_same, load, plan_of
from plan_factories import make_checkpoint

from kimi_serve.launcher.adopt.adoption import Adoption
from kimi_serve.launcher.resolver.situation import look_up
from kimi_serve.launcher.rules import run_rules
from kimi_serve.launcher.sources.profile import read_profile_text
from kimi_serve.schemas.engine_names import SWITCH
from kimi_serve.schemas.findings import Finding
from kimi_serve.schemas.support import load_support

DATA = Path(__file__).parents[1] / "data" / "commands.json"
CASES: list[dict[str, Any]] = json.loads(DATA.read_text(encoding="utf-8"))
OURS = tuple(f"KS{number}" for number in (*range(102, 111), *range(201, 211), *range(301, 308)))


def argv_of(case: dict[str, Any], folder: Path) -> list[str]:
    """Give the command; the configuration file that it names is made here."""
    argv: list[str] = list(case["argv"])
    if "config_file" in case:
        file = folder / "config.yaml"
        file.write_text(case["config_file"], encoding="utf-8")
        argv[argv.index("--config") + 1] = str(file)
    return argv


def adopted(case: dict[str, Any], folder: Path) -> Adoption:
    variables = [f"{name}={value}" for name, value in case["env"].items()]
    return adopt_words(*variables, *argv_of(case, folder))


def checkpoint_of(case: dict[str, Any]) -> Any:
    architecture = case["architecture"]
    return None if architecture == "unknown" else make_checkpoint(architecture)


def said_of(case: dict[str, Any], adoption: Adoption) -> tuple[Finding, ...]:
    situation = look_up(load(adoption), checkpoint_of(case), None, load_support())
    return (*adoption.findings, *run_rules(situation))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_the_profile_can_be_read(case: dict[str, Any], tmp_path: Path) -> None:
    adoption = adopted(case, tmp_path)
    (layer,) = read_profile_text(adoption.text, "p.yaml", "/deploy", None)
    assert layer.findings == ()
    settings = load(adoption).settings
    assert settings.engine.kind == case["engine"]
    assert settings.model.path or "model" in adoption.text
    for name, value in case["env"].items():
        assert settings.engine.env.get(name) == value or name in adoption.text
    assert "sk-EXAMPLE" not in adoption.text


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_it_is_judged_as_the_command_is(case: dict[str, Any], tmp_path: Path) -> None:
    found = said_of(case, adopted(case, tmp_path))
    told = {one.rule for one in found if one.rule in OURS}
    expected = {each["rule"] for each in case["findings"] if each["rule"] in OURS}
    if case["id"] == "C22":
        expected.add("KS109")  # the engine's own help calls a flag of it deprecated
    assert expected <= told
    loud = {one.rule for one in found if one.rule in OURS and one.severity != "info"}
    assert loud <= expected, [one for one in found if one.rule in loud - expected]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_a_key_on_the_command_line_is_said(case: dict[str, Any], tmp_path: Path) -> None:
    told = {one.rule for one in said_of(case, adopted(case, tmp_path))}
    assert ("KS505" in told) == any("sk-EXAMPLE" in word for word in case["argv"])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_its_plan_says_what_the_command_said(case: dict[str, Any], tmp_path: Path) -> None:
    if "config_file" in case:
        pytest.skip("compared below: its flags stand in a file")
    plan = plan_of(adopted(case, tmp_path), checkpoint=checkpoint_of(case))
    assert_same(case["argv"], plan)
    assert plan.launch is not None
    found = plan.launch.environment({})
    for name, value in case["env"].items():
        assert found.get(name) == value or name == SWITCH


def test_a_configuration_file_is_merged(tmp_path: Path) -> None:
    (case,) = (each for each in CASES if "config_file" in each)
    plan = plan_of(adopted(case, tmp_path))
    assert_same(
        [
            "vllm", "serve", "/models/kimi-k2.5", "--host", "0.0.0.0", "--port", "9000",
            "--tensor-parallel-size", "8", "--max-model-len", "38000",
            "--gpu-memory-utilization", "0.95", "--trust-remote-code", "--tokenizer-mode", "auto",
            "--swap-space", "0", "--served-model-name", "kimi",
            "--compilation_config.cudagraph_mode", "FULL_DECODE_ONLY", "--enable-prefix-caching",
            "--enable-chunked-prefill", "--max-num-batched-tokens", "38000", "--dtype", "auto",
            "--max-num-seqs", "4", "--compilation_config.mode", "VLLM_COMPILE",
            "--tool-call-parser", "kimi_k2", "--reasoning-parser", "kimi_k2",
            "--enable-auto-tool-choice",
        ],
        plan,
    )  # fmt: skip
