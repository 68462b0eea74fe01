"""From a case to the plan of it and to the command line that the plan launches."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from kimi_serve.launcher.pipeline import find_checkpoint, load
from kimi_serve.launcher.resolver.resolve import resolve
from kimi_serve.schemas.engine_launch import EngineLaunch
from kimi_serve.schemas.hardware import Hardware
from kimi_serve.schemas.plan import LaunchPlan
from kimi_serve.schemas.support import SupportTable, load_support

from .cases import DEMO, Case, Engine, cases

# Nothing of the machine that proves is in a command.
MACHINE = Hardware(64.0, 1024 * 1024, (), "this machine has none", shm_mib=512 * 1024)
CHECKPOINT = "CHECKPOINT"
ENTRY_POINTS = {"sglang": "sglang.launch_server", "vllm": "vllm.entrypoints.cli.main"}


@dataclass(frozen=True)
class Command:
    """What one plan launches. `words` stand behind the interpreter and its entry point.

    `raw` are the words without engine.args, and engine.args behind them as they are written; None
    where there are none.
    """

    plan: LaunchPlan
    launch: EngineLaunch
    words: tuple[str, ...]
    environment: Mapping[str, str]
    raw: tuple[str, ...] | None = None


@cache
def _support() -> SupportTable:
    return load_support()


def command_of(case: Case) -> Command:
    """Plan a deployment; whatever refuses it is raised."""
    with tempfile.TemporaryDirectory() as folder:
        profile = Path(folder, "case.kimi-serve.yaml")
        tree = ({"extends": case.profile} if case.profile else {}) | case.tree
        profile.write_text(json.dumps(tree), encoding="utf-8")
        loaded = load([profile], {}, [], case.env)
    plan = resolve(loaded, find_checkpoint(loaded, case.env), MACHINE, _support(), case.env)
    launch = plan.launch
    assert launch is not None, f"{case.name}: nothing is launched"
    assert launch.head[1:3] == ("-m", ENTRY_POINTS[case.engine])
    words = launch.argv()[3:]
    environment = launch.environment(case.env)
    args = plan.settings.engine.args
    raw = None
    if args:
        without = replace(case, settings={**case.settings, "engine.args": []})
        raw = (*command_of(without).words, *args)
    return Command(plan, launch, words, environment, raw)


@cache
def commands(engine: Engine) -> Mapping[str, Command]:
    """Plan all cases of one engine."""
    return {case.name: command_of(case) for case in cases(engine)}


def portable(value: Any) -> Any:
    """Give the same without the place of this repository."""
    return json.loads(json.dumps(value).replace(json.dumps(str(DEMO))[1:-1], CHECKPOINT))
