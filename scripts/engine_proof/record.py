"""The recorded answers of an engine: one line a case, in the order of the table of cases."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .cases import ENGINES, ROOT, Engine
from .commands import Command, portable

ALIKE = "alike"
FOLDER = ROOT / "tests" / "data" / "engine_understanding"


def record_path(engine: Engine) -> Path:
    return FOLDER / f"{engine}-{ENGINES[engine]}.json"


def entry(command: Command, answer: Mapping[str, Any]) -> dict[str, Any]:
    """Put a command and what was understood of it together, nothing of it twice.

    `resolved` keeps what is not as given, `raw` is ALIKE where it is.
    """
    given = answer["given"]
    resolved = {
        name: value
        for name, value in answer["resolved"].items()
        if name not in given or given[name] != value
    }
    found = {
        "words": portable(command.words),
        "environment": portable(dict(sorted(command.environment.items()))),
        **answer,
        "resolved": resolved,
    }
    if answer.get("raw") == {"given": given, "error": ""}:
        found["raw"] = ALIKE
    return found


def render(engine: Engine, entries: Mapping[str, Any]) -> str:
    lines = [f"{json.dumps(name)}: {json.dumps(each)}" for name, each in entries.items()]
    head = f'{{"engine": "{engine}", "version": "{ENGINES[engine]}", "cases": {{'
    return "\n".join([head, ",\n".join(lines), "}}", ""])


def read_record(engine: Engine) -> Mapping[str, Any]:
    cases: Mapping[str, Any] = json.loads(record_path(engine).read_text(encoding="utf-8"))["cases"]
    return cases


def refresh_command(engine: str) -> str:
    return f"python scripts/engine_understanding.py {engine} PYTHON_WITH_{engine.upper()} --write"
