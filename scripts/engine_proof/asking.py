"""Asks an engine what it understands, in a child that its own interpreter runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .cases import Engine
from .commands import Command, portable
from .expected import fields

CHILDREN = Path(__file__).resolve().parents[1] / "engine_children"
PATIENCE_S = 600


class AskingError(Exception):
    """The child ended without an answer; the message has the end of what it wrote."""


def python_variable(engine: str) -> str:
    """Name the variable that names an interpreter with this engine."""
    return f"KIMI_SERVE_TEST_{engine.upper()}_PYTHON"


def plain_environment() -> dict[str, str]:
    """Give what a process needs, and no variable that an engine could take for a setting."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    return kept | {"HF_HUB_OFFLINE": "1", "PYTHONDONTWRITEBYTECODE": "1"}


def run_child(
    python: str, program: str, request: Any, environment: Mapping[str, str] | None = None
) -> list[Any]:
    """Run one program of `engine_children`, with exactly this environment."""
    done = subprocess.run(
        [python, str(CHILDREN / program)],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        env=plain_environment() if environment is None else environment,
        timeout=PATIENCE_S,
        check=False,
    )
    if done.returncode:
        message = f"{program} ended with {done.returncode}: {done.stderr[-4000:]}"
        raise AskingError(message)
    answers: list[Any] = json.loads(done.stdout)
    return answers


def ask(engine: Engine, python: str, commands: Sequence[Command]) -> list[dict[str, Any]]:
    """Give what the engine understands of each command, without the place of the checkpoint.

    "raw" is what it would understand of engine.args if they were handed on as they are.
    """
    spoken = [(each.words, each.environment) for each in commands]
    spoken += [(each.raw, each.environment) for each in commands if each.raw is not None]
    request = {
        "commands": [{"words": words, "env": env} for words, env in spoken],
        "fields": fields(engine),
    }
    answers = [portable(answer) for answer in run_child(python, f"ask_{engine}.py", request)]
    raw = iter(answers[len(commands) :])
    return [
        answer if command.raw is None else answer | {"raw": _outcome(next(raw))}
        for command, answer in zip(commands, answers, strict=False)
    ]


def _outcome(answer: dict[str, Any]) -> dict[str, Any]:
    return {"given": answer["given"], "error": answer["error"]}


def read_registry(file: Path, environments: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """Have an engine's registry of variables read these, by any Python."""
    request = {"file": str(file), "environments": list(environments)}
    answer: dict[str, Any] = run_child(sys.executable, "engine_variables.py", request)[0]
    return answer
