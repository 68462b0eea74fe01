"""The worker processes as a whole: started, watched, replaced, stopped.

Knows nothing of jobs; whoever gives them work hears of ready workers, messages and ends.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import logging
import os
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from kimi_serve.schemas import errors, messages
from kimi_serve.schemas.worker import WorkerSpec

from .ends import end_kind, start_error
from .fork_client import ForkClient
from .jobs import Death
from .process import describe_exit, is_crash
from .restarts import EndKind, RestartPolicy
from .worker_link import WorkerLink, WorkerState

logger = logging.getLogger(__name__)

STOP_GRACE_S = 3.0
_MORE_FILES = "raise the limit of open files (ulimit -n)"


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


@dataclass(slots=True)
class PoolCounts:
    """What happened since the start of the server, through every reload."""

    images: int = 0
    texts: int = 0
    retried: int = 0
    overdue: int = 0
    died: int = 0
    replaced: int = 0
    gpu_fallbacks: collections.Counter[str] = field(default_factory=collections.Counter[str])


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
        self,
        specs: Sequence[WorkerSpec],
        base_env: Mapping[str, str],
        start_timeout_s: float,
        listener: FleetListener,
        counts: PoolCounts,
    ) -> None:
        self._specs = tuple(specs)
        # All are forked from one process, so they cannot but have the same variables.
        (env,) = {spec.env for spec in specs}
        self._client = ForkClient(dict(env), base_env)
        self._start_timeout_s = start_timeout_s
        self._listener = listener
        self._counts = counts
        self._links: dict[int, WorkerLink] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._policies: dict[int, RestartPolicy] = collections.defaultdict(RestartPolicy)
        self._fork_server_policy = RestartPolicy()
        self._was_fork_server_useful = False
        self._was_fork_server_late = False
        self._is_forking = asyncio.Event()
        self._changed = asyncio.Event()
        self._failure: asyncio.Future[errors.WorkerError] | None = None
        self.has_started = False
        self.is_closing = False

    def launch(self) -> None:
        """Start the fork server process, which imports while the caller goes on."""
        self._client.start()

    async def start(self) -> None:
        """Bring up all workers; raises WorkerStartError with the log of the one that failed."""
        self._failure = asyncio.get_running_loop().create_future()
        self._client.attach(self)
        self._is_forking.set()
        self._task(self._open_all())
        await self._wait_until(lambda: self.is_ready or self.has_failed)
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
        await self._client.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for link in self._links.values():
            await link.close()

    async def failed(self) -> errors.WorkerError:
        """Wait until the fleet cannot go on; gives the reason."""
        assert self._failure is not None
        return await asyncio.shield(self._failure)

    @property
    def fork_server_pid(self) -> int | None:
        return self._client.pid

    def kill_fork_server(self) -> None:
        """End a fork server that does not run; it and the workers start again."""
        self._client.kill()

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

    # What the fork server says

    def on_spawned(self, index: int, pid: int) -> None:
        """Hear the pid of a worker that was asked for."""
        self._links[index].know_pid(pid, self._on_gone)

    def on_not_spawned(self, index: int, reason: str) -> None:
        """Hear that a worker could not be forked."""
        self._bury(self._links[index], Death(index, f"cannot be forked: {reason}", is_crash=True))

    def on_exited(self, pid: int, status: int) -> None:
        """Hear of the end of a worker."""
        how, has_exited = describe_exit(status), os.WIFEXITED(status)
        for index, link in self._links.items():
            if link.pid == pid:
                self._bury(link, Death(index, how, is_crash(status), has_exited))

    def on_fork_server_lost(self) -> None:
        """Start anew: every worker has gone with the fork server."""
        if self.is_closing:
            return
        self._is_forking.clear()
        self._task(self._restart_fork_server())
        for link in self.links():
            link.kill()
            how = "gone with the fork server"
            self._bury(link, Death(link.spec.index, how, is_crash=False))

    # What workers say

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
        link.ready_at = time.monotonic()
        link.stop_deadline()
        self._was_fork_server_useful = True
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

    # Bringing up, burying, replacing

    async def _open_all(self) -> None:
        for spec in self._specs:
            await self._until_forking()
            if self.is_closing:
                return
            await self._open(spec)

    async def _until_forking(self) -> None:
        """Wait for a fork server; whoever opens a link at once then is buried with it."""
        # It may be lost again between the event and the turn of who waits for it.
        while not self._is_forking.is_set():
            await self._is_forking.wait()

    async def _open(self, spec: WorkerSpec) -> None:
        link = WorkerLink(spec)
        self._links[spec.index] = link
        loop = asyncio.get_running_loop()
        link.deadline = loop.call_later(self._start_timeout_s, self._on_late, link)
        try:
            await link.open(self._client, self._on_frame)
        except BaseException:
            link.give_up()
            self._changed.set()
            await link.close()
            raise

    def _on_late(self, link: WorkerLink) -> None:
        if link.report is not None or link.end is not None or self.is_closing:
            return
        if self.has_started:
            late = link.name if link.pid else "the fork server, asked for a worker,"
            logger.error("%s is not ready after %g s; killing it", late, self._start_timeout_s)
            if link.pid:
                link.is_late = True
                link.kill()
            else:
                self._was_fork_server_late = True
                self._client.kill()
            return
        message = f"{link.name} is not ready after {self._start_timeout_s:g} s"
        self._fail(errors.WorkerStartError(message, hint="raise server.start_timeout_s"))

    def _on_gone(self, link: WorkerLink) -> None:
        how = "ended, and the fork server does not say how"
        self._bury(link, Death(link.spec.index, how, is_crash=False))

    def _bury(self, link: WorkerLink, death: Death) -> None:
        if not link.is_being_buried:
            link.is_gone = link.is_being_buried = True
            link.stop_deadline()
            self._task(self._bury_and_replace(link, death))

    async def _bury_and_replace(self, link: WorkerLink, death: Death) -> None:
        """Hear a worker's last words, pass on its jobs, put another in its place."""
        await link.drain()
        kind = end_kind(link, death)
        link.end = "stopped" if link.is_stopping else "failed"
        self._listener.on_ended(link, death)
        self._changed.set()
        await link.close()
        if link.is_stopping or self.is_closing:
            return
        self._counts.died += 1
        logger.error("%s (pid %s) ended: %s", link.name, link.pid, death.how)
        if not self.has_started and link.report is None and death.has_exited:
            self._fail(start_error(link, death.how))
            return
        await self._replace(link, death.how, kind)

    async def _replace(self, link: WorkerLink, how: str, kind: EndKind) -> None:
        policy = self._policies[link.spec.index]
        while True:
            pause_s = policy.next_pause(time.monotonic(), kind, is_starting=not self.has_started)
            if pause_s is None:
                self._fail(start_error(link, how))
                return
            await asyncio.sleep(pause_s)
            await self._until_forking()
            if self.is_closing:
                return
            try:
                await self._open(link.spec)
            except OSError as error:  # no descriptors, no memory: it may pass
                logger.error("%s cannot be replaced yet: %s", link.name, error)
                kind = "useless"
            else:
                self._counts.replaced += 1
                return

    async def _restart_fork_server(self) -> None:
        status, log = await self._client.end()
        how = end = describe_exit(status)
        last_words = "\n".join(log) or "(it logged nothing)"
        if not self.has_started and os.WIFEXITED(status):
            message = f"the fork server ended before all workers were ready: {how}\n{last_words}"
            self._fail(errors.WorkerStartError(message))
            return
        kind = self._fork_server_end_kind(status)
        hint: str | None = None
        while True:
            pause_s = self._fork_server_policy.next_pause(
                time.monotonic(), kind, is_starting=not self.has_started
            )
            if pause_s is None:
                message = f"the fork server ends again and again: {how}\n{last_words}"
                self._fail(errors.WorkerStartError(message, hint=hint))
                return
            logger.error(
                "the fork server ended: %s; it and all workers start again in %g s; "
                "its last lines: %s",
                how,
                pause_s,
                last_words,
            )
            await asyncio.sleep(pause_s)
            if self.is_closing:
                return
            try:
                self._client.start()
                self._client.attach(self)
            except OSError as error:  # no descriptors, no processes, no memory: it may pass
                await self._client.close()
                how = f"{end}, and another cannot be started: {error}"
                kind, hint = "useless", _MORE_FILES
            else:
                self._is_forking.set()
                return

    def _fork_server_end_kind(self, status: int) -> EndKind:
        """Say whether another may be of use, and forget what this one did."""
        was_useful, was_late = self._was_fork_server_useful, self._was_fork_server_late
        self._was_fork_server_useful = self._was_fork_server_late = False
        if was_useful:
            return "useful"
        return "useless" if was_late or is_crash(status) else "killed"

    def _fail(self, error: errors.WorkerError) -> None:
        assert self._failure is not None
        if not self._failure.done():
            self._failure.set_result(error)
        self._listener.on_failed()
        self._changed.set()

    async def _wait_until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    def _task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        """Never lose a fault: work that fails unforeseen is the end of the fleet."""
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        hint = _MORE_FILES if isinstance(error, OSError) else None
        logger.error("the workers cannot be managed", exc_info=error)
        self._fail(errors.WorkerStartError(f"the workers cannot be managed: {error}", hint=hint))
