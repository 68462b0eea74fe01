"""When an engine is ready, and when nothing runs in it any more."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Any

from kimi_serve.schemas.engine_launch import EngineLaunch, Readiness

from ..machine.sockets import command_of, has_connections, listening_inodes, owners
from .asking import ask

logger = logging.getLogger(__name__)

# SGLang's /health generates a token and may take 20 s for it.
_PROBE_TIMEOUT_S = 30.0
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 1.0
_PAUSE_IN_A_ROW_S = 0.05

_LOAD_TIMEOUT_S = 5.0
_LOAD_PAUSE_S = 0.2
# Requests are not counted before they are tokenised and their images preprocessed: with clients
# connected, "nothing runs" is believed after a longer while.
_IDLE_ANSWERS = 3
_IDLE_ANSWERS_WITH_CLIENTS = 10
_COUNTS = ("num_running_reqs", "num_waiting_reqs", "server_load")


class LineCount:
    """Counts the lines that say ready, in the thread that reads them."""

    def __init__(self, readiness: Readiness) -> None:
        self._line = readiness.log_line
        self._missing = readiness.log_count if readiness.log_line else 0
        self.is_complete = False

    def see(self, line: str) -> None:
        """Look at one line."""
        if self._missing and self._line in line:
            self._missing -= 1
            self.is_complete = not self._missing


async def become_ready(
    launch: EngineLaunch, lines: LineCount, engine_pids: Callable[[], list[int]]
) -> None:
    """Return when the engine answers as `launch.readiness` asks for."""
    if not launch.readiness.url:
        return
    in_a_row, pause_s, is_stranger_told = 0, _FIRST_PAUSE_S, False
    while True:
        # Counted before the probe: a line between the two says nothing about this answer.
        is_enough = lines.is_complete
        is_ok = await _probe(launch.readiness)
        in_a_row = in_a_row + 1 if is_ok else 0
        if is_ok and (is_enough or in_a_row >= launch.readiness.consecutive):
            stranger = _stranger(launch.port, engine_pids())
            if not stranger:
                return
            in_a_row = 0
            if not is_stranger_told:
                is_stranger_told = True
                logger.warning(
                    "port %d is answered by %s, not by the engine", launch.port, stranger
                )
        if not in_a_row:
            pause_s = min(pause_s * 1.2, _LONGEST_PAUSE_S)
        await asyncio.sleep(_PAUSE_IN_A_ROW_S if in_a_row else pause_s)


async def _probe(readiness: Readiness) -> bool:
    for path in readiness.paths:
        answer = await ask(readiness.url, path, timeout_s=_PROBE_TIMEOUT_S)
        if answer is None:
            return False
        if answer.status != 404:
            return answer.status == 200
    return False


def _stranger(port: int, engine_pids: list[int]) -> str:
    """Name who listens on the port when it is surely none of the engine's processes."""
    inodes = listening_inodes(port)
    if not inodes or owners(inodes, engine_pids):
        return ""
    others = owners(inodes)
    if not others:  # not ours to see
        return ""
    pid = min(others)
    return f"pid {pid} ({command_of(pid)})"


async def become_idle(launch: EngineLaunch, key: str | None) -> None:
    """Return when nothing runs: by the engine's own word, else when no client is connected."""
    in_a_row = 0
    while True:
        running = await _num_running(launch, key)
        is_connected = has_connections(launch.port)
        is_idle = not is_connected if running is None else running == 0
        in_a_row = in_a_row + 1 if is_idle else 0
        if in_a_row >= (_IDLE_ANSWERS_WITH_CLIENTS if is_connected else _IDLE_ANSWERS):
            return
        await asyncio.sleep(_LOAD_PAUSE_S)


async def _num_running(launch: EngineLaunch, key: str | None) -> int | None:
    path = launch.stopping.load_path
    if not path or not launch.readiness.url:
        return None
    answer = await ask(launch.readiness.url, path, timeout_s=_LOAD_TIMEOUT_S, key=key)
    return None if answer is None or answer.status != 200 else count_running(answer.body)


def count_running(body: bytes) -> int | None:
    """Add up the requests that an answer of /v1/loads or /load counts; None where it has none."""
    try:
        document: Any = json.loads(body)
    except ValueError:
        return None
    found = list(_counts(document))
    return sum(found) if found else None


def _counts(document: Any) -> list[int]:
    match document:
        case [*items]:
            return [count for item in items for count in _counts(item)]
        case {**fields}:
            own = (fields.get(name) for name in _COUNTS)
            deeper = [count for value in fields.values() for count in _counts(value)]
            return [count for count in own if isinstance(count, int)] + deeper
        case _:
            return []
