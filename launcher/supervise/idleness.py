"""When nothing runs in an engine any more, and what is known of it when that takes too long."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from kimi_serve.schemas.engine_launch import EngineLaunch

from ..machine.sockets import count_connections
from .asking import Answer, ask
from .processes import is_stopped

_LOAD_TIMEOUT_S = 5.0
_LOAD_PAUSE_S = 0.2
# Requests are not counted before they are tokenised and their images preprocessed: with clients
# connected, "nothing runs" is believed after a longer while.
_IDLE_ANSWERS = 3
_IDLE_ANSWERS_WITH_CLIENTS = 10
_COUNTS = ("num_running_reqs", "num_waiting_reqs", "server_load")


class Work:
    """What an engine has to do, as far as it and /proc tell."""

    def __init__(self, launch: EngineLaunch, key: str | None = None) -> None:
        self._launch = launch
        self._key = key
        # The last answer of the engine, None where it gave none.
        self._running: int | None = None

    async def become_idle(self) -> None:
        """Return when nothing runs: by the engine's own word, else when nobody is connected."""
        in_a_row = 0
        while True:
            self._running = await self._num_running()
            num_clients = self._num_clients()
            is_idle = not num_clients if self._running is None else self._running == 0
            in_a_row = in_a_row + 1 if is_idle else 0
            if in_a_row >= (_IDLE_ANSWERS_WITH_CLIENTS if num_clients else _IDLE_ANSWERS):
                return
            await asyncio.sleep(_LOAD_PAUSE_S)

    async def _num_running(self) -> int | None:
        path, url = self._launch.stopping.load_path, self._launch.readiness.url
        if not path or not url.startswith("http"):
            return None
        answer = await ask(url, path, timeout_s=_LOAD_TIMEOUT_S, key=self._key)
        if not isinstance(answer, Answer) or answer.status != 200:
            return None
        return count_running(answer.body)

    def _num_clients(self) -> int:
        return sum(map(count_connections, self._launch.ports))

    def describe(self, pid: int) -> str:
        """Say what is known of the work that an engine of this number has not finished."""
        if is_stopped(pid):
            return f"it is stopped (SIGSTOP, or a debugger), so it finishes nothing (pid {pid})"
        if self._running:
            return f"requests still run: {self._running}"
        path = self._launch.stopping.load_path
        unknown = f"{path} does not answer, so " if path and self._running is None else ""
        num_clients = self._num_clients()
        if num_clients:
            are = "client is" if num_clients == 1 else "clients are"
            return f"{unknown}requests may still run: {num_clients} {are} connected"
        if not self._launch.ports:
            return f"{unknown}whether requests still run is not known"
        return f"{unknown}it is not known to do anything: no client is connected"


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
