"""What is said of public engine commands, written as profiles: all that should be, and no more."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from plan_factories import NO_GPU, make_checkpoint

from kimi_serve.launcher.engine_command import find_command
from kimi_serve.launcher.resolver.situation import Situation, look_up
from kimi_serve.launcher.rules import run_rules
from kimi_serve.launcher.sources.layers import Layer
from kimi_serve.launcher.sources.load import Layers, merge
from kimi_serve.launcher.sources.profile import read_profile_text
from kimi_serve.schemas.findings import Finding
from kimi_serve.schemas.hardware import Hardware
from kimi_serve.schemas.support import load_support

DATA = Path(__file__).parents[1] / "data" / "commands.json"
CASES: list[dict[str, Any]] = json.loads(DATA.read_text(encoding="utf-8"))
LEVELS = {"W": "warning", "I": "info"}

# Where ours says more than the list that came with the commands, or less, and why that is right.
MORE = {
    "C22": {"KS109"},  # the engine's help calls --enable-flashinfer-allreduce-fusion deprecated
    # A bare `vllm serve` listens on every address. A profile that names none gets 127.0.0.1 with
    # either engine, which is what `plan` shows: in a container nobody reaches that.
    "C36": {"KS401"},
    "C38": {"KS401"},
    "C40": {"KS401"},
}
# For the same reason: what listens on 127.0.0.1 is not exposed.
OF_LISTENING = {"KS501", "KS506"}
NOT_EXPOSED = {"C36", "C38", "C39", "C40", "C48", "C52"}


def situation_of(
    case: dict[str, Any], *, in_context: bool = True, hardware: Hardware | None = None
) -> Situation:
    """Write the command as engine.args and engine.env of a profile.

    A command alone does not say that it runs in a container: what ran it does, by the variables
    that it sets.
    """
    command = find_command(case["argv"])
    assert command is not None
    given: dict[str, Any] = {"kind": case["engine"], "args": case["argv"][command.start :]}
    context: dict[str, Any] = case.get("context", {}) if in_context else {}
    signs = {
        "container": {"container": "docker"},
        "kubernetes": {"KUBERNETES_SERVICE_HOST": "10.96.0.1"},
    }
    env = dict(case["env"])
    for word, sign in signs.items():
        env |= sign if context.get(word) else {}
    if env:
        given["env"] = env
    text = json.dumps({"engine": given})
    layers: tuple[Layer, ...] = read_profile_text(text, "p.yaml", "/deploy", {})
    architecture = case["architecture"]
    checkpoint = None if architecture == "unknown" else make_checkpoint(architecture)
    return look_up(merge(Layers(layers)), checkpoint, hardware, load_support())


def is_about(finding: Finding, about: str, situation: Situation) -> bool:
    """Tell whether a finding stands at the flag, its value, or the variable."""
    loaded = situation.loaded
    args = loaded.settings.engine.args
    about = " " if about == "(argument of one blank)" else about
    places = [
        loaded.item("engine.args", place)
        for index, word in enumerate(args)
        if word.partition("=")[0] == about or word == about
        for place in (index, index + 1)
        if place < len(args)
    ]
    entry = loaded.entry("engine.env", about)
    if about == "--host":
        places.append(loaded.origin("server.host"))
    return finding.origin in (*places, entry.name, entry.value)


def expected(case: dict[str, Any]) -> list[dict[str, Any]]:
    return [each for each in case["findings"] if "(in the file)" not in each["about"]]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_what_should_be_said_is_said(case: dict[str, Any]) -> None:
    situation = situation_of(case)
    found = run_rules(situation)
    for each in expected(case):
        told = [
            one
            for one in found
            if one.rule == each["rule"] and is_about(one, each["about"], situation)
        ]
        assert told, (each, found)
        if "severity" in each:
            assert {one.severity for one in told} == {LEVELS[each["severity"]]}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_nothing_else_is_said(case: dict[str, Any]) -> None:
    told = {one.rule for one in run_rules(situation_of(case)) if one.severity != "info"}
    exposed = set(case["exposure"])
    exposed -= OF_LISTENING if case["id"] in NOT_EXPOSED else set[str]()
    wanted = {each["rule"] for each in expected(case) if each.get("severity") != "I"}
    assert told == wanted | exposed | MORE.get(case["id"], set())


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.get("clean")], ids=lambda case: case["id"]
)
def test_a_clean_command_is_clean(case: dict[str, Any]) -> None:
    # Notes are shown to those who select them, exposure is judged apart.
    told = {
        one.rule
        for one in run_rules(situation_of(case, in_context=False))
        if one.severity != "info"
    }
    assert told <= set(case["exposure"])


def test_a_file_of_the_engine_is_read_where_somebody_looks_at_the_host(tmp_path: Path) -> None:
    (case,) = [case for case in CASES if "config_file" in case]
    file = tmp_path / "config_k25.yaml"
    file.write_text(case["config_file"], encoding="utf-8")
    argv = [str(file) if word.endswith("config_k25.yaml") else word for word in case["argv"]]
    case = {**case, "argv": argv}
    assert not [one for one in run_rules(situation_of(case)) if one.rule == "KS103"]
    (told,) = [one for one in run_rules(situation_of(case, hardware=NO_GPU)) if one.rule == "KS103"]
    assert str(told.origin) == f"{file}:9:1"
    assert "swap-space" in told.message
    assert told.severity == "error"
