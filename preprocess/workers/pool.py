"""The pool of worker processes: dispatch, replacement of the dead, nothing lost.

Written here because no library pool keeps its jobs through repeated kills of its workers. A job
is pure, so it is sent to another worker when its worker died; never after a timeout.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kimi_serve.schemas import errors, messages
from kimi_serve.schemas.worker import WorkerSpec

from .dispatch import Dispatcher
from .fork_client import ForkClient
from .jobs import Death, Job
from .process import describe_exit, is_crash
from .worker_link import WorkerLink, WorkerState

logger = logging.getLogger(__name__)

# A replacement that ends before it is ready is tried again after these pauses, then the pool
# gives up.
RESTART_BACKOFF_S = (0.0, 0.2, 1.0, 3.0, 10.0)
STOP_GRACE_S = 3.0


@dataclass(frozen=True, slots=True)
class ImageLease:
    """An answer and its pixels, which stay valid until the lease ends."""

    result: messages.ImageResult
    pixels: memoryview


@dataclass(slots=True)
class PoolCounts:
    """What happened since the start."""

    images: int = 0
    texts: int = 0
    retried: int = 0
    died: int = 0
    replaced: int = 0
    overdue: int = 0


@dataclass(frozen=True, slots=True)
class WorkerSnapshot:
    """One worker now; `report` is what the worker itself said when it was ready."""

    index: int
    pid: int | None
    state: WorkerState
    report: messages.WorkerReport | None


class Pool:
    """Workers of `specs` behind one event loop.

    `launch` starts the fork server at once, so that it imports while the caller imports too;
    `start` brings up all workers or raises WorkerStartError with the log of the one that failed.
    """

    def __init__(
        self,
        specs: Sequence[WorkerSpec],
        *,
        base_env: Mapping[str, str],
        start_timeout_s: float,
        job_timeout_s: float,
    ) -> None:
        self._specs = tuple(specs)
        self._start_timeout_s = start_timeout_s
        self._job_timeout_s = job_timeout_s
        self._client = ForkClient(dict(specs[0].env), base_env)
        self._links: dict[int, WorkerLink] = {}
        self._jobs = Dispatcher(job_timeout_s, self._on_overdue)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._start_failures = collections.Counter[int]()
        self.has_started = False
        self._is_closing = False
        self._changed = asyncio.Event()
        self._failed: asyncio.Future[errors.WorkerError] | None = None
        self.counts = PoolCounts()

    # Life

    def launch(self) -> None:
        """Start the fork server process."""
        self._client.start()

    async def start(self) -> None:
        """Start every worker and wait until all are ready."""
        loop = asyncio.get_running_loop()
        self._failed = loop.create_future()
        self._client.attach(loop, self)
        for spec in self._specs:
            await self._open(spec)
        try:
            async with asyncio.timeout(self._start_timeout_s):
                await self._wait_until(lambda: self.is_ready or self._has_failed)
        except TimeoutError:
            late = [link.name for link in self._links.values() if not link.is_usable]
            message = f"{', '.join(late)} not ready after {self._start_timeout_s:g} s"
            raise errors.WorkerStartError(message, hint="raise server.start_timeout_s") from None
        if self._failed.done():
            raise self._failed.result()
        self.has_started = True

    async def failed(self) -> errors.WorkerError:
        """Wait until the pool cannot go on; gives the reason."""
        assert self._failed is not None
        return await asyncio.shield(self._failed)

    async def close(self) -> None:
        """Stop all workers: ask, wait a little, kill."""
        self._is_closing = True
        for link in self._links.values():
            link.stop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_GRACE_S):
                await self._wait_until(lambda: all(link.end for link in self._links.values()))
        self._client.close(asyncio.get_running_loop())
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for link in self._links.values():
            if link.end is None:
                await link.close("stopped")
        self._jobs.fail_all("the server is stopping")

    # State

    @property
    def is_ready(self) -> bool:
        """Whether every worker is ready."""
        return len(self._links) == len(self._specs) and all(
            link.is_usable for link in self._links.values()
        )

    @property
    def num_usable(self) -> int:
        return sum(link.is_usable for link in self._links.values())

    @property
    def num_queued(self) -> int:
        """Count the jobs that no worker has taken yet."""
        return self._jobs.num_queued

    @property
    def fork_server_pid(self) -> int | None:
        return self._client.pid

    def snapshots(self) -> list[WorkerSnapshot]:
        return [
            WorkerSnapshot(link.spec.index, link.pid, link.state, link.report)
            for _, link in sorted(self._links.items())
        ]

    # Work

    @contextlib.asynccontextmanager
    async def image(self, reference: bytes) -> AsyncGenerator[ImageLease]:
        """Have the image named by `reference` processed; its pixels are leased for the block.

        Raises RequestError of the kind that the worker reported.
        """
        job = self._add(reference, messages.ImageJob, is_image=True)
        try:
            link, slot, result = await job.answered
        except asyncio.CancelledError:
            _release_unseen(job)
            raise
        pixels = link.arena.slot(slot)[: result.nbytes]
        try:
            yield ImageLease(result, pixels)
        finally:
            pixels.release()
            link.release(slot)
            self._pump()

    async def prompt(self, payload: bytes, num_images: int) -> tuple[messages.TokensResult, bytes]:
        """Render and tokenise a chat; gives the answer and the ids as little-endian int32."""
        return await self._text(
            payload, lambda job_id, _slot: messages.PromptJob(job_id, num_images)
        )

    async def text(self, payload: bytes) -> tuple[messages.TokensResult, bytes]:
        """Tokenise one text; gives the answer and the ids as little-endian int32."""
        return await self._text(payload, lambda job_id, _slot: messages.TextJob(job_id))

    async def _text(
        self, payload: bytes, make: Callable[[int, int], messages.Message]
    ) -> tuple[messages.TokensResult, bytes]:
        result, ids = await self._add(payload, make, is_image=False).answered
        return result, ids

    def _add(
        self, payload: bytes, make: Callable[[int, int], messages.Message], *, is_image: bool
    ) -> Job:
        if self._is_closing or self._has_failed:
            raise errors.UnavailableError("the server is stopping")
        job = self._jobs.add(payload, make, is_image=is_image)
        self._pump()
        return job

    def _pump(self) -> None:
        self._jobs.pump(link for _, link in sorted(self._links.items()))

    # Events

    def _on_frame(self, link: WorkerLink, message: messages.Message, payload: bytes) -> None:
        match message:
            case messages.WorkerReport():
                self._on_ready(link, message)
            case messages.WorkerFailed():
                link.failure = message
            case messages.ImageResult() | messages.TokensResult() | messages.JobFailed():
                self._on_answer(link, message, payload)
            case _:
                logger.error("%s sent %s", link.name, type(message).__name__)
                link.kill()
        self._notify()

    def _on_ready(self, link: WorkerLink, report: messages.WorkerReport) -> None:
        link.report = report
        self._start_failures[link.spec.index] = 0
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
        self._pump()

    def _on_answer(
        self,
        link: WorkerLink,
        message: messages.ImageResult | messages.TokensResult | messages.JobFailed,
        payload: bytes,
    ) -> None:
        job = link.take(message.id)
        if job is None:
            logger.error("%s answered job %d, which it does not have", link.name, message.id)
            link.kill()
            return
        job.stop_clock()
        is_leased = False
        match message:
            case messages.JobFailed():
                job.fail(_error(message))
            case messages.ImageResult():
                self.counts.images += 1
                is_leased = job.answer((link, job.slot, message))
            case messages.TokensResult():
                self.counts.texts += 1
                job.answer((message, payload))
        if job.is_image and not is_leased:
            link.release(job.slot)
        self._pump()

    def _on_overdue(self, link: WorkerLink, job: Job) -> None:
        self.counts.overdue += 1
        logger.error(
            "%s did not answer job %d within %g s; killing it",
            link.name,
            job.id,
            self._job_timeout_s,
        )
        job.fail(errors.DeadlineError(f"not finished within {self._job_timeout_s:g} s"))
        link.kill()

    def on_spawned(self, index: int, pid: int) -> None:
        """Hear the pid of a worker that was asked for."""
        link = self._links[index]
        link.pid = pid
        if self._is_closing:
            link.stop()

    def on_exited(self, pid: int, status: int) -> None:
        """Hear of the end of a worker."""
        for link in self._links.values():
            if link.pid == pid and link.end is None:
                self._end(link, describe_exit(status), is_crash=is_crash(status))

    def on_fork_server_lost(self) -> None:
        """Start anew: every worker has gone with the fork server."""
        if self._is_closing:
            return
        if not self.num_usable:
            message = "the fork server ended before any worker was ready; its last words are above"
            self._fail(errors.WorkerStartError(message))
            return
        logger.error("the fork server ended; starting it and all workers again")
        loop = asyncio.get_running_loop()
        self._client.close(loop)
        self._client.start()
        self._client.attach(loop, self)
        for link in list(self._links.values()):
            if link.end is None:
                link.kill()
                self._end(link, "gone with the fork server", is_crash=False)

    def _end(self, link: WorkerLink, how: str, *, is_crash: bool) -> None:
        was_ready = link.report is not None
        link.end = "stopped" if link.is_stopping else "failed"
        self._task(self._finish(link, how, was_ready=was_ready))
        for job in link.take_all():
            if self._jobs.send_elsewhere(job, Death(link.spec.index, how, is_crash)):
                self.counts.retried += 1
        self._notify()
        self._pump()

    async def _finish(self, link: WorkerLink, how: str, *, was_ready: bool) -> None:
        await link.close(link.end or "failed")
        if link.is_stopping or self._is_closing:
            self._notify()
            return
        self.counts.died += 1
        logger.error("%s (pid %s) ended: %s", link.name, link.pid, how)
        index = link.spec.index
        failures = 0 if was_ready else self._start_failures[index] + 1
        self._start_failures[index] = failures
        if not was_ready and (not self.has_started or failures >= len(RESTART_BACKOFF_S)):
            self._fail(_start_error(link, how))
            return
        await asyncio.sleep(RESTART_BACKOFF_S[failures])
        if not self._is_closing:
            self.counts.replaced += 1
            await self._open(link.spec)

    def _fail(self, error: errors.WorkerError) -> None:
        assert self._failed is not None
        if not self._failed.done():
            self._failed.set_result(error)
        self._jobs.fail_all("the workers cannot be started")
        self._notify()

    @property
    def _has_failed(self) -> bool:
        return self._failed is not None and self._failed.done()

    async def _open(self, spec: WorkerSpec) -> None:
        link = WorkerLink(spec)
        self._links[spec.index] = link
        await link.open(self._client, self._on_frame)

    async def _wait_until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    def _notify(self) -> None:
        self._changed.set()

    def _task(self, coroutine: Any) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _release_unseen(job: Job) -> None:
    """Free the slot of an answer that came in the moment its waiter was cancelled."""
    if job.answered.done() and not job.answered.cancelled() and not job.answered.exception():
        link, slot, _ = job.answered.result()
        link.release(slot)


def _error(failed: messages.JobFailed) -> errors.KimiServeError:
    kind = getattr(errors, failed.error, errors.KimiServeError)
    error: errors.KimiServeError = kind(failed.message, hint=failed.hint)
    return error


def _start_error(link: WorkerLink, how: str) -> errors.WorkerStartError:
    if link.failure is not None:
        detail = link.failure.traceback or link.failure.message
        return errors.WorkerStartError(
            f"{link.name} cannot start: {detail}", hint=link.failure.hint
        )
    log = "\n".join(link.log_tail) or "(it logged nothing)"
    return errors.WorkerStartError(f"{link.name} ended before it was ready: {how}\n{log}")
