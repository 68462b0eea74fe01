"""The engine's part of a plan: its command, variables, readiness and stop, as text and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from kimi_serve.schemas.engine_launch import EngineFlag, EngineLaunch, EngineVariable, Stopping
from kimi_serve.schemas.plan import LaunchPlan
from kimi_serve.schemas.provenance import Origin

from .shell import flag_words, on_one_line, variable_word
from .words import columns


def command_lines(launch: EngineLaunch | None) -> list[str]:
    """Give the command, one flag a line, each with its setting and its reason."""
    if launch is None:
        return []
    head = " ".join(map(on_one_line, launch.head))
    rows = [(" ".join(flag_words(flag, on_one_line)), _comment(flag)) for flag in launch.flags]
    return [f"  {head}", *columns(rows, indent="    ")]


def variable_lines(launch: EngineLaunch | None) -> list[str]:
    """Give what is set and what is taken away."""
    if launch is None:
        return []
    rows = [
        (
            f"unset {on_one_line(variable.name)}"
            if variable.value is None
            else variable_word(variable, on_one_line),
            _comment(variable),
        )
        for variable in launch.variables
    ]
    return columns(rows)


def _comment(said: EngineFlag | EngineVariable) -> str:
    place = f"{said.path} ({said.origin})" if said.path else str(said.origin)
    return f"# {place}: {said.reason}"


def watch_lines(plan: LaunchPlan) -> list[str]:
    """Say when the engine counts as ready, and how it is stopped."""
    if plan.launch is None:
        return []
    engine = plan.settings.engine
    return columns(
        [
            ("ready", f"{_ready(plan.launch)}, within {engine.startup_timeout_s:g} s"),
            ("stop", _stop(plan.launch.stopping, engine.kill_timeout_s)),
        ]
    )


def _ready(launch: EngineLaunch) -> str:
    ready = launch.readiness
    if not ready.url:
        return "when it runs: it answers no clients"
    if ready.url.startswith("tcp:"):
        line = f" after the line {ready.log_line!r}" if ready.log_line else ""
        return f"a connection to {ready.url} that is accepted{line}"
    places = " or ".join(ready.paths)
    number = f"{ready.consecutive} answers" if ready.consecutive > 1 else "an answer"
    text = f"{number} 200 from {ready.url}{places}"
    if not ready.required:
        text += ", or that it still runs"
    if ready.consecutive > 1:
        text += " in a row"
        if ready.log_line:
            text += f", or one after {ready.log_count} lines {ready.log_line!r}"
    return text


def _stop(stopping: Stopping, kill_s: float) -> str:
    kill = f"then SIGKILL to the group after {kill_s:g} s"
    drain_s = f"{stopping.drain_timeout_s:g} s"
    if stopping.drains:
        return f"SIGTERM, upon which it finishes what runs within {drain_s}, {kill}"
    if stopping.load_path:
        return (
            f"wait until {stopping.load_path} says that nothing runs, {drain_s} at most, then "
            f"SIGTERM, {kill}"
        )
    return f"SIGTERM at once, {kill}"


def launch_json(plan: LaunchPlan) -> dict[str, Any] | None:
    """Give the same as JSON-ready data, secrets as `${NAME}`."""
    launch = plan.launch
    if launch is None:
        return None
    return {
        "engine": launch.engine,
        "argv": [*launch.head, *(word for flag in launch.flags for word in flag.shown)],
        "head": list(launch.head),
        "flags": list(_flags_json(launch.flags)),
        "variables": list(_variables_json(launch.variables)),
        "host": launch.host,
        "port": launch.port,
        "readiness": asdict(launch.readiness)
        | {"timeout_s": plan.settings.engine.startup_timeout_s},
        "stopping": asdict(launch.stopping)
        | {"kill_timeout_s": plan.settings.engine.kill_timeout_s},
        "install": None if plan.install is None else asdict(plan.install),
    }


def _flags_json(flags: Sequence[EngineFlag]) -> Iterator[dict[str, Any]]:
    for flag in flags:
        yield {"flag": flag.name, "words": list(flag.shown), **_source(flag)}


def _variables_json(variables: Sequence[EngineVariable]) -> Iterator[dict[str, Any]]:
    for variable in variables:
        yield {"name": variable.name, "value": variable.shown, **_source(variable)}


def _source(said: EngineFlag | EngineVariable) -> dict[str, Any]:
    return {
        "path": said.path,
        "origin": origin_json(said.origin),
        "reason": said.reason,
        "secret": bool(said.secret),
    }


def origin_json(origin: Origin) -> dict[str, Any]:
    """Give an origin in its parts, and as it is written."""
    return asdict(origin) | {"text": str(origin)}
