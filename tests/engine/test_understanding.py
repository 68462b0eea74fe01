"""What the engines understand of our command lines is what the plan says: without a GPU.

The answers are the recorded ones, tests/data/engine_understanding. Name an interpreter that has the
engine in KIMI_SERVE_TEST_SGLANG_PYTHON or KIMI_SERVE_TEST_VLLM_PYTHON, and the engine itself is
asked instead, and compared with the record. docs/engine-proof.md says what is stubbed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import cache
from typing import Any, get_args

import pytest
from engine_proof.asking import ask, python_variable
from engine_proof.cases import ENGINES, PROFILES, Case, Engine, cases
from engine_proof.commands import commands, portable
from engine_proof.expected import OWN_WORDS, SAID, Said
from engine_proof.record import ALIKE, entry, read_record, refresh_command

from kimi_serve.launcher.engines.equivalents import EQUIVALENTS
from kimi_serve.launcher.pipeline import load
from kimi_serve.schemas.engine_facts import FlagFacts, engine_table
from kimi_serve.schemas.provenance import DEFAULT

pytestmark = pytest.mark.timeout(600)  # an engine is asked once, by whichever test comes first
NAMES: tuple[Engine, ...] = get_args(Engine)
EVERY = [case for engine in NAMES for case in cases(engine)]


def label(case: Case) -> str:
    return f"{case.engine}: {case.name}"


@cache
def answers(engine: Engine) -> Mapping[str, Any]:
    """What the engine understands of every case: asked once, or as recorded."""
    python = os.environ.get(python_variable(engine))
    if not python:
        return read_record(engine)
    found = ask(engine, python, list(commands(engine).values()))
    pairs = zip(commands(engine).items(), found, strict=True)
    return {name: entry(command, answer) for (name, command), answer in pairs}


def stale(case: Case, what: str) -> str:
    return f"{what}; if that is meant: {refresh_command(case.engine)}"


@pytest.mark.parametrize("case", EVERY, ids=label)
def test_the_record_is_of_this_command(case: Case) -> None:
    command = commands(case.engine)[case.name]
    recorded = read_record(case.engine).get(case.name)
    assert recorded is not None, stale(case, "the case is not recorded")
    assert recorded["words"] == portable(command.words), stale(case, "the command is another one")
    assert recorded["environment"] == portable(command.environment), stale(case, "other variables")


@pytest.mark.parametrize("engine", NAMES)
def test_nothing_else_is_recorded(engine: Engine) -> None:
    assert set(read_record(engine)) == set(commands(engine)), refresh_command(engine)


@pytest.mark.parametrize("engine", NAMES)
def test_the_record_is_what_the_engine_says(engine: Engine) -> None:
    variable = python_variable(engine)
    if not os.environ.get(variable):
        pytest.skip(f"{variable} names no interpreter that has {engine}: the record stands in")
    assert answers(engine) == read_record(engine), refresh_command(engine)


@pytest.mark.parametrize("case", EVERY, ids=label)
def test_the_engine_takes_the_command(case: Case) -> None:
    answer = answers(case.engine)[case.name]
    assert answer["error"] == ""
    assert answer["variables"]["warnings"] == []


@pytest.mark.parametrize("case", EVERY, ids=label)
def test_every_setting_is_understood_as_planned(case: Case) -> None:
    plan = commands(case.engine)[case.name].plan
    answer = answers(case.engine)[case.name]
    origins = {value.path: value.origin for value in plan.values}
    own = OWN_WORDS.get(case.name.partition(",")[0], ())
    checked = 0
    for path, group in SAID[case.engine].items():
        for said in group:
            expected = said.value(plan.settings)
            is_said = said.always or origins[path] != DEFAULT
            if expected is None or not is_said or said.name in own:
                continue
            assert understood(said, answer) == portable(expected), (path, said.name)
            checked += 1
    assert checked


def understood(said: Said, answer: Mapping[str, Any]) -> Any:
    if said.variable:
        values = answer["variables"]["values"]
        return values.get(said.name, answer["environment"].get(said.name))
    name = said.name
    resolved = answer["resolved"]
    return resolved[name] if name in resolved else answer["given"].get(name)


@pytest.mark.parametrize("case", EVERY, ids=label)
def test_every_flag_is_understood_and_nothing_else(case: Case) -> None:
    table = engine_table(case.engine, ENGINES[case.engine])
    assert table is not None
    given = dict(answers(case.engine)[case.name]["given"])
    launch = commands(case.engine)[case.name].launch
    for flag in launch.flags:
        if not flag.name:  # vLLM's own word `serve`, and its model
            given.pop("model", None)
            continue
        facts = table.by_spelling.get(flag.name.partition(".")[0])
        assert facts is not None, flag.name
        found = given.pop(facts.field, facts.default)
        if flag.path != "engine.args":
            assert found == portable(read_words(facts, flag.values)), flag.name
    if "--headless" in {flag.name for flag in launch.flags}:
        assert given.pop("api_server_count") == 0  # vLLM's own conclusion
    assert given == {}


@pytest.mark.parametrize("case", EVERY, ids=label)
def test_engine_args_mean_what_they_mean_to_the_engine(case: Case) -> None:
    """Aliases, abbreviations and the rest are written anew, in the engine's long flags."""
    answer = answers(case.engine)[case.name]
    if commands(case.engine)[case.name].raw is None:
        assert "raw" not in answer
    elif case.name.startswith("args own nodes") and case.engine == "vllm":
        # vLLM refuses the API servers that we would ask for beside it.
        assert "--headless" in answer["raw"]["error"]
    else:
        assert answer["raw"] == ALIKE


def read_words(facts: FlagFacts, words: tuple[str, ...]) -> Any:
    """Read the words behind a flag by its type."""
    if facts.is_switch:
        return True
    items = [read_word(facts, word) for word in words]
    return items[0] if facts.least == facts.most == 1 else items


def read_word(facts: FlagFacts, word: str) -> Any:
    if facts.type in ("int", "float"):
        return {"int": int, "float": float}[facts.type](word)
    return json.loads(word) if facts.type == "json" or word.startswith("{") else word


@pytest.mark.parametrize("engine", NAMES)
def test_the_table_of_the_proof_has_every_setting_that_becomes_something(engine: Engine) -> None:
    assert set(SAID[engine]) == set(EQUIVALENTS[engine])


def test_every_example_is_proved() -> None:
    for path in PROFILES.glob("*.kimi-serve.yaml"):
        kind = load([path], {}, [], {"KIMI_API_KEY": "k"}).settings.engine.kind
        engines = NAMES if kind == "none" else (kind,)
        name = f"example {path.name.removesuffix('.kimi-serve.yaml')}"
        assert all(name in commands(engine) for engine in engines)
