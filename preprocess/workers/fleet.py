"""The worker processes as a whole: started, watched, replaced, stopped.

Knows nothing of jobs; whoever gives them work hears of ready workers, messages and ends.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kimi_serve.schemas import errors, messages
from kimi_serve.schemas.worker import WorkerSpec

from .fork_client import ForkClient
from .jobs import Death
from .process import describe_exit, is_crash
from .worker_link import WorkerLink, WorkerState

logger = logging.getLogger(__name__)

# What ends again before it was of use is tried again after these pauses, then the fleet gives up.
RESTART_BACKOFF_S = (0.0, 0.2, 1.0, 3.0, 10.0)
STOP_GRACE_S = 3.0
_FORK_SERVER = -1


class FleetListener(Protocol):
    """Who gives the workers work; called from the event loop."""

    def on_usable(self) -> None:
        """Some worker can take work now."""

    def on_message(self, link: WorkerLink, message: messages.Message, payload: bytes) -> None:
        """A worker answered."""

    def on_ended(self, link: WorkerLink, death: Death) -> None:
        """A worker ended; what it worked on is still with it."""

    def on_failed(self) -> None:
        """The fleet cannot go on."""


@dataclass(frozen=True, slots=True)
class WorkerSnapshot:
    """One worker now; `report` is what the worker itself said when it was ready."""

    index: int
    pid: int | None
    state: WorkerState
    report: messages.WorkerReport | None


class Fleet:
    """One worker for each spec, replaced when it ends unasked."""

    def __init__(
        self, specs: Sequence[WorkerSpec], base_env: Mapping[str, str], listener: FleetListener
    ) -> None:
        self._specs = tuple(specs)
        self._client = ForkClient(dict(specs[0].env), base_env)
        self._listener = listener
        self._links: dict[int, WorkerLink] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        # Ends in a row without use, by worker; the fork server's stand under _FORK_SERVER.
        self._useless_ends = collections.Counter[int]()
        self._is_forking = asyncio.Event()
        self._changed = asyncio.Event()
        self._failure: asyncio.Future[errors.WorkerError] | None = None
        self.has_started = False
        self.is_closing = False
        self.num_died = 0
        self.num_replaced = 0

    def launch(self) -> None:
        """Start the fork server process, which imports while the caller goes on."""
        self._client.start()

    async def start(self, timeout_s: float) -> None:
        """Bring up all workers; raises WorkerStartError with the log of the one that failed."""
        loop = asyncio.get_running_loop()
        self._failure = loop.create_future()
        self._client.attach(loop, self)
        self._is_forking.set()
        for spec in self._specs:
            await self._open(spec)
        try:
            async with asyncio.timeout(timeout_s):
                await self._wait_until(lambda: self.is_ready or self.has_failed)
        except TimeoutError:
            late = [link.name for link in self._links.values() if not link.is_usable]
            message = f"{', '.join(late)} not ready after {timeout_s:g} s"
            raise errors.WorkerStartError(message, hint="raise server.start_timeout_s") from None
        if self._failure.done():
            raise self._failure.result()
        self.has_started = True

    async def close(self) -> None:
        """Stop all workers: ask, wait a little, kill."""
        self.is_closing = True
        for link in self._links.values():
            link.stop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_GRACE_S):
                await self._wait_until(lambda: all(link.end for link in self._links.values()))
        self._client.close(asyncio.get_running_loop())
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for link in self._links.values():
            await link.close(link.end or "stopped")

    async def failed(self) -> errors.WorkerError:
        """Wait until the fleet cannot go on; gives the reason."""
        assert self._failure is not None
        return await asyncio.shield(self._failure)

    @property
    def has_failed(self) -> bool:
        return self._failure is not None and self._failure.done()

    @property
    def is_ready(self) -> bool:
        """Whether every worker is ready."""
        return len(self._links) == len(self._specs) and self.num_usable == len(self._specs)

    @property
    def num_usable(self) -> int:
        return sum(link.is_usable for link in self._links.values())

    def links(self) -> list[WorkerLink]:
        """Give the workers by index."""
        return [link for _, link in sorted(self._links.items())]

    def snapshots(self) -> list[WorkerSnapshot]:
        return [
            WorkerSnapshot(link.spec.index, link.pid, link.state, link.report)
            for link in self.links()
        ]

    def on_spawned(self, index: int, pid: int) -> None:
        """Hear the pid of a worker that was asked for."""
        self._links[index].pid = pid

    def on_exited(self, pid: int, status: int) -> None:
        """Hear of the end of a worker."""
        for link in self._links.values():
            if link.pid == pid and link.end is None:
                self._end(link, describe_exit(status), is_crash=is_crash(status))

    def on_fork_server_lost(self) -> None:
        """Start anew: every worker has gone with the fork server."""
        if self.is_closing:
            return
        self._is_forking.clear()
        if not self.has_started:
            message = (
                "the fork server ended before the workers were ready; its last words are above"
            )
            self._fail(errors.WorkerStartError(message))
            return
        self._task(self._restart_fork_server())
        for link in self.links():
            if link.end is None:
                link.kill()
                self._end(link, "gone with the fork server", is_crash=False)

    async def _restart_fork_server(self) -> None:
        loop = asyncio.get_running_loop()
        self._client.close(loop)
        failures = self._useless_ends[_FORK_SERVER]
        if failures >= len(RESTART_BACKOFF_S):
            self._fail(errors.WorkerStartError(f"the fork server ended {failures} times in a row"))
            return
        self._useless_ends[_FORK_SERVER] += 1
        pause_s = RESTART_BACKOFF_S[failures]
        logger.error("the fork server ended; it and all workers start again in %g s", pause_s)
        await asyncio.sleep(pause_s)
        self._client.start()
        self._client.attach(loop, self)
        self._is_forking.set()

    def _on_frame(self, link: WorkerLink, message: messages.Message, payload: bytes) -> None:
        match message:
            case messages.WorkerReport():
                self._on_ready(link, message)
            case messages.WorkerFailed():
                link.failure = message
            case _:
                self._listener.on_message(link, message, payload)
        self._changed.set()

    def _on_ready(self, link: WorkerLink, report: messages.WorkerReport) -> None:
        link.report = report
        self._useless_ends[_FORK_SERVER] = 0
        logger.info(
            "%s ready in %.2f s (pid %d, decode %s, preprocess %s, CUDA_VISIBLE_DEVICES=%r, "
            "%d CUDA libraries mapped)",
            link.name,
            report.build_ms / 1000,
            report.pid,
            report.decode_device,
            report.preprocess_device,
            report.cuda_visible_devices,
            len(report.cuda_libraries),
        )
        self._listener.on_usable()

    def _end(self, link: WorkerLink, how: str, *, is_crash: bool) -> None:
        link.end = "stopped" if link.is_stopping else "failed"
        index = link.spec.index
        if link.num_jobs:
            self._useless_ends[index] = 0
        elif link.report is None or is_crash:
            self._useless_ends[index] += 1
        self._listener.on_ended(link, Death(index, how, is_crash))
        self._task(self._bury(link, how))
        self._changed.set()

    async def _bury(self, link: WorkerLink, how: str) -> None:
        """Let go of an ended worker and put another in its place."""
        await link.close(link.end or "failed")
        if link.is_stopping or self.is_closing:
            return
        self.num_died += 1
        logger.error("%s (pid %s) ended: %s", link.name, link.pid, how)
        if not self.has_started:
            self._fail(_start_error(link, how))
            return
        await self._replace(link, how)

    async def _replace(self, link: WorkerLink, how: str) -> None:
        index = link.spec.index
        while self._useless_ends[index] < len(RESTART_BACKOFF_S):
            await asyncio.sleep(RESTART_BACKOFF_S[self._useless_ends[index]])
            await self._is_forking.wait()
            try:
                await self._open(link.spec)
            except OSError as error:  # no descriptors, no memory: it may pass
                logger.error("%s cannot be replaced yet: %s", link.name, error)
                self._useless_ends[index] += 1
            else:
                self.num_replaced += 1
                return
        self._fail(_start_error(link, how))

    def _fail(self, error: errors.WorkerError) -> None:
        assert self._failure is not None
        if not self._failure.done():
            self._failure.set_result(error)
        self._listener.on_failed()
        self._changed.set()

    async def _open(self, spec: WorkerSpec) -> None:
        link = WorkerLink(spec)
        self._links[spec.index] = link
        await link.open(self._client, self._on_frame)

    async def _wait_until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    def _task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _start_error(link: WorkerLink, how: str) -> errors.WorkerStartError:
    if link.failure is not None:
        detail = link.failure.traceback or link.failure.message
        return errors.WorkerStartError(
            f"{link.name} cannot start: {detail}", hint=link.failure.hint
        )
    log = "\n".join(link.log_tail) or "(it logged nothing)"
    when = "ended before it was ready" if link.report is None else "ends again and again, idle"
    return errors.WorkerStartError(f"{link.name} {when}: {how}\n{log}")
