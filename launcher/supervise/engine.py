"""Runs an engine from the check of its port to the exit of the launcher."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Mapping, Sequence
from typing import Any

from kimi_serve.schemas.budget import MemoryBudget
from kimi_serve.schemas.engine_launch import EngineLaunch
from kimi_serve.schemas.errors import EngineError, KimiServeError, PlanError
from kimi_serve.schemas.findings import Finding
from kimi_serve.schemas.settings import Settings

from ..budget.sentences import summary
from ..listening import check_free, take_port
from .attempt import Attempt, Supervision
from .endings import NotStarted
from .exits import End, Explanation, explain
from .log_queue import queued_logging
from .restarts import Restarts
from .signals import StopSignals
from .state import EngineState

logger = logging.getLogger(__name__)

_MEMORY_RULES = ("KS301", "KS302")


def run_engine(
    launch: EngineLaunch,
    settings: Settings,
    base_env: Mapping[str, str],
    *,
    memory_note: str = "",
    plan: Mapping[str, Any] | None = None,
) -> None:
    """Run until SIGTERM or Ctrl-C; raises EngineError when the engine cannot go on.

    `base_env` is what the engine inherits. `memory_note` is the plan's arithmetic, shown when
    memory ran out; `plan` is the redacted plan for /server_info.
    """
    with contextlib.ExitStack() as stack:
        listener = _status_listener(launch, settings, stack)
        check_ports(launch)
        stack.enter_context(queued_logging())
        asyncio.run(_supervise(launch, settings, base_env, memory_note, plan or {}, listener))


def memory_note(findings: Sequence[Finding], budget: MemoryBudget | None = None) -> str:
    """Give the plan's arithmetic about GPU memory, and what would change it."""
    notes = [
        f"{finding.message}{f' ({finding.help})' if finding.help else ''}"
        for finding in findings
        if finding.rule in _MEMORY_RULES
    ]
    if not notes and budget is not None:
        notes = [summary(budget)]
    return "; ".join(dict.fromkeys(notes))


def _status_listener(
    launch: EngineLaunch, settings: Settings, stack: contextlib.ExitStack
) -> socket.socket | None:
    port = settings.engine.status_port
    if port is None:
        return None
    if port in launch.ports and port != 0:
        other = launch.said_by("--port", "server.port")
        raise PlanError(
            f"engine.status_port and {other} are both {port}",
            hint="choose another engine.status_port; 0 takes a free one",
        )
    chosen_by = "server.host", "engine.status_port"
    # Where 0 chose it, it must not be what the engine is about to take.
    return stack.enter_context(take_port(settings.server.host, port, *chosen_by))


def check_ports(launch: EngineLaunch) -> None:
    """Say early that the port is taken: an engine says so after it has loaded the model."""
    chosen_by = launch.said_by("--host", "server.host"), launch.said_by("--port", "server.port")
    for port in filter(None, launch.ports):
        check_free(launch.host, port, *chosen_by)


async def _supervise(
    launch: EngineLaunch,
    settings: Settings,
    base_env: Mapping[str, str],
    note: str,
    plan: Mapping[str, Any],
    listener: socket.socket | None,
) -> None:
    signals = StopSignals()
    state = EngineState()
    supervision = Supervision(launch, settings, base_env, note, signals, state)
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(signals.caught())
        if listener is not None:
            from .status import create_app, status_server

            app = create_app(state, plan, settings.server)
            await stack.enter_async_context(status_server(listener, app))
        await _run_until_stopped(supervision)
        logger.info("stopped")


async def _run_until_stopped(supervision: Supervision) -> None:
    """Start the engine as often as engine.restart allows; return after a stop, raise at the end."""
    engine, state = supervision.settings.engine, supervision.state
    restarts = Restarts(engine.restart, engine.max_restarts, engine.restart_backoff_s)
    while not supervision.signals.first.is_set():
        if restarts.total:
            check_ports(supervision.launch)
        attempt = Attempt(supervision)
        end = await attempt.run()
        if end is None:
            return
        explanation = explain(end)
        pause_s = restarts.next_pause_s(
            ready_for_s=attempt.ready_for_s if attempt.is_proven else None,
            is_usage=explanation.is_usage,
        )
        if pause_s is None:
            state.become("failed")
            raise _error(end, explanation, restarts)
        logger.error("%s", explanation.message)
        logger.warning(
            "starting it again in %g s (%d of %d in a row)",
            pause_s,
            restarts.in_a_row,
            restarts.limit,
        )
        state.become("restarting")
        state.restarts = restarts.total
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(supervision.signals.first.wait(), pause_s)
        state.become("starting")


def _error(end: End, explanation: Explanation, restarts: Restarts) -> KimiServeError:
    message = explanation.message
    if restarts.total:
        message += f"; given up after {restarts.in_a_row} restarts in a row"
    if isinstance(end.ending, NotStarted):
        return PlanError(message, hint=explanation.hint)
    if end.lines:
        message += "\n  its last lines:\n" + "\n".join(f"    {line[:500]}" for line in end.lines)
    return EngineError(message, hint=explanation.hint)
