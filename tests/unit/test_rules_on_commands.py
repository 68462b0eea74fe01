"""What is said of public engine commands, written as profiles: all that should be, and no more."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from plan_factories import make_checkpoint

from kimi_serve.launcher.engine_command import find_command
from kimi_serve.launcher.resolver.situation import Situation, look_up
from kimi_serve.launcher.rules import run_rules
from kimi_serve.launcher.sources.layers import Layer
from kimi_serve.launcher.sources.load import Layers, merge
from kimi_serve.launcher.sources.profile import read_profile_text
from kimi_serve.schemas.findings import Finding
from kimi_serve.schemas.support import load_support

DATA = Path(__file__).parents[1] / "data" / "commands.json"
CASES: list[dict[str, Any]] = json.loads(DATA.read_text(encoding="utf-8"))
# What clients may reach is judged apart (`exposure`), places and shells by their own rules.
OURS = tuple(f"KS{number}" for number in (*range(102, 111), *range(201, 211), *range(301, 308)))


def situation_of(case: dict[str, Any]) -> Situation:
    """Write the command as engine.args and engine.env of a profile."""
    command = find_command(case["argv"])
    assert command is not None
    given: dict[str, Any] = {"kind": case["engine"], "args": list(command.args)}
    if case["env"]:
        given["env"] = case["env"]
    text = json.dumps({"engine": given})
    layers: tuple[Layer, ...] = read_profile_text(text, "p.yaml", "/deploy", {})
    architecture = case["architecture"]
    checkpoint = None if architecture == "unknown" else make_checkpoint(architecture)
    return look_up(merge(Layers(layers)), checkpoint, None, load_support())


def is_about(finding: Finding, about: str, situation: Situation) -> bool:
    """Tell whether a finding stands at the flag, its value, or the variable."""
    loaded = situation.loaded
    args = loaded.settings.engine.args
    places = [
        loaded.item("engine.args", place)
        for index, word in enumerate(args)
        if word.partition("=")[0] == about or word == about
        for place in (index, index + 1)
        if place < len(args)
    ]
    entry = loaded.entry("engine.env", about)
    return finding.origin in (*places, entry.name, entry.value)


def expected(case: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        each
        for each in case["findings"]
        if each["rule"] in OURS and "(in the file)" not in each["about"]
    ]


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
        levels = {"W": "warning", "I": "info"}
        if "severity" in each:
            assert {one.severity for one in told} == {levels[each["severity"]]}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_nothing_else_is_said(case: dict[str, Any]) -> None:
    found = run_rules(situation_of(case))
    told = {one.rule for one in found if one.rule in OURS and one.severity != "info"}
    more = MORE.get(case["id"], set())
    assert told == {each["rule"] for each in expected(case) if each.get("severity") != "I"} | more


# True as well, and not in the list that came with the commands.
MORE = {
    "C16": {"KS301"},  # the contexts of workers that share a GPU, as in the other cases
    "C22": {"KS109"},  # the engine's help calls --enable-flashinfer-allreduce-fusion deprecated
}
