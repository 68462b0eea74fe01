"""The pool of workers as its users see it: give it an image or a text, get the answer.

Written here because no library pool keeps its jobs through repeated kills of its workers. A job
is pure, so it is sent to another worker when its worker ended; never after a timeout.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kimi_serve.schemas import errors, messages
from kimi_serve.schemas.worker import WorkerSpec

from .answers import is_sound
from .dispatch import Dispatcher
from .fleet import Fleet, PoolCounts, WorkerSnapshot
from .jobs import Death, Job
from .leases import ImageLease, Leases
from .process import release_memory
from .watch import Watch
from .worker_link import WorkerLink

logger = logging.getLogger(__name__)

# A worker without work for this long gives memory back.
QUIET_S = 1.0
_STOPPING = "the server is stopping"


class Pool:
    """Workers of `specs` and the jobs for them, in one event loop.

    `launch`, then `start` inside the loop; `close` at the end.
    """

    def __init__(
        self,
        specs: Sequence[WorkerSpec],
        *,
        base_env: Mapping[str, str],
        start_timeout_s: float,
        job_timeout_s: float,
        image_timeout_s: float,
        text_timeout_s: float,
        counts: PoolCounts | None = None,
    ) -> None:
        self._job_timeout_s = job_timeout_s
        self.counts = counts or PoolCounts()
        self._fleet = fleet = Fleet(specs, base_env, start_timeout_s, self, self.counts)
        self._watch = Watch(
            fleet.links,
            lambda: fleet.fork_server_pid,
            image_timeout_s,
            text_timeout_s,
            self._on_costly,
        )
        self._jobs = Dispatcher(job_timeout_s, self._on_overdue)
        self._leases = Leases(self._on_free)
        self._tidying: dict[int, asyncio.TimerHandle] = {}

    def launch(self) -> None:
        """Start the fork server process, which imports while the caller goes on."""
        self._fleet.launch()

    async def start(self) -> None:
        """Bring up all workers or raise WorkerStartError."""
        self._watch.start(self._fleet.kill_fork_server)
        await self._fleet.start()

    async def failed(self) -> errors.WorkerError:
        """Wait until the workers cannot go on; gives the reason."""
        return await self._fleet.failed()

    async def close(self) -> None:
        """Stop all workers and answer what still waits."""
        self._watch.stop()
        await self._fleet.close()
        for link in self._fleet.links():
            for job in link.take_all():
                job.stop_clock()
                job.fail(errors.UnavailableError(_STOPPING))
        self._jobs.fail_all(_STOPPING)
        await self._leases.close()

    @property
    def has_started(self) -> bool:
        """Whether all workers were ready once."""
        return self._fleet.has_started

    @property
    def num_usable(self) -> int:
        return self._fleet.num_usable

    @property
    def num_queued(self) -> int:
        """Count the jobs that no worker has taken yet."""
        return self._jobs.num_queued

    def snapshots(self) -> list[WorkerSnapshot]:
        return self._fleet.snapshots()

    async def lease(
        self,
        content: bytes,
        encoding: messages.PixelEncoding,
        *,
        is_file: bool = False,
        request: object = None,
    ) -> ImageLease:
        """Have the image in `content` processed; the caller releases what it gets.

        `content` is the file itself when `is_file`, else a reference that carries it. Images of
        one `request` take turns with those of others.

        Raises RequestError of the kind that the worker reported.
        """
        job = self._add(
            content,
            lambda job_id, slot: messages.ImageJob(job_id, slot, encoding, is_file),
            is_image=True,
            request=request,
        )
        link, slot, result = await self._answer_of(job)
        lease = self._leases.add(link, slot, result)
        self._make_room()
        return lease

    @contextlib.asynccontextmanager
    async def image(
        self, content: bytes, encoding: messages.PixelEncoding, *, is_file: bool = False
    ) -> AsyncGenerator[ImageLease]:
        """Have an image processed; its pixels are leased for the block."""
        lease = await self.lease(content, encoding, is_file=is_file)
        try:
            yield lease
        finally:
            lease.release()

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
        result, ids = await self._answer_of(self._add(payload, make, is_image=False))
        return result, ids

    async def _answer_of(self, job: Job) -> Any:
        """Wait for the answer; a caller that gives up leaves nothing behind."""
        try:
            return await job.answered
        except asyncio.CancelledError:
            self._jobs.forget(job)
            self._release_unseen(job)
            raise

    def _release_unseen(self, job: Job) -> None:
        """Free the slot of an answer that came in the moment its waiter was cancelled."""
        if (
            job.is_image
            and job.answered.done()
            and not job.answered.cancelled()
            and not job.answered.exception()
        ):
            link, slot, _ = job.answered.result()
            link.release(slot)
            self._on_free(link)

    def _add(
        self,
        payload: bytes,
        make: Callable[[int, int], messages.Message],
        *,
        is_image: bool,
        request: object = None,
    ) -> Job:
        if self._fleet.is_closing or self._fleet.has_failed:
            raise errors.UnavailableError(_STOPPING)
        job = self._jobs.add(payload, make, is_image=is_image, request=request)
        self.on_usable()
        return job

    def on_usable(self) -> None:
        """Give what waits to the workers that can take it."""
        self._jobs.pump(self._fleet.links())
        self._make_room()

    def _make_room(self) -> None:
        if self._jobs.has_images:
            self._leases.make_room(self._fleet.links())

    def on_message(self, link: WorkerLink, message: messages.Message, payload: bytes) -> None:
        """Hand a worker's answer to whoever waits for it."""
        if isinstance(message, messages.Answer):
            job = link.job(message.id)
            if job is not None and not is_sound(message, payload, job, link.spec.slot_bytes):
                # The job stays with it, and goes elsewhere with its end.
                logger.error(
                    "%s gave job %d an answer that cannot be; killing it", link.name, job.id
                )
                link.kill()
                return
            if job is not None:
                link.take(job)
                self._settle(link, job, message, payload)
                return
        logger.error("%s sent %s, which nobody asked for", link.name, type(message).__name__)
        link.kill()

    def _settle(self, link: WorkerLink, job: Job, message: messages.Answer, payload: bytes) -> None:
        job.stop_clock()
        is_leased = False
        match message:
            case messages.JobFailed():
                job.fail(_error(message))
            case messages.ImageResult():
                self.counts.images += 1
                if message.gpu_fallback is not None:
                    self.counts.gpu_fallbacks[message.gpu_fallback] += 1
                is_leased = job.answer((link, job.slot, message))
            case messages.TokensResult():
                self.counts.texts += 1
                job.answer((message, payload))
        if job.is_image and not is_leased:
            link.release(job.slot)
            self._tidy_later(link)
        self.on_usable()

    def on_ended(self, link: WorkerLink, death: Death) -> None:
        """Send what a dead worker had to others; a crash is its image's fault, if it had one."""
        had_image = link.image_job is not None
        for job in link.take_all():
            is_innocent = had_image and not job.is_heavy
            blamed = replace(death, is_crash=False) if is_innocent else death
            if self._jobs.send_elsewhere(job, blamed):
                self.counts.retried += 1
        self.on_usable()

    def _on_free(self, link: WorkerLink) -> None:
        self._tidy_later(link)
        self.on_usable()

    def _tidy_later(self, link: WorkerLink) -> None:
        """The allocator keeps big blocks, which makes images fast; without work they go back."""
        index = link.spec.index
        if index in self._tidying:
            self._tidying[index].cancel()
        loop = asyncio.get_running_loop()
        self._tidying[index] = loop.call_later(QUIET_S, self._tidy, link)

    def _tidy(self, link: WorkerLink) -> None:
        if link.is_quiet:
            link.tidy()
        if all(other.is_quiet for other in self._fleet.links()):
            self._leases.forget_buffers()
            release_memory()

    def on_failed(self) -> None:
        """Give up what waits: no worker will come for it."""
        self._jobs.fail_all("the workers cannot be started")

    def _on_costly(self, link: WorkerLink, job: Job, limit_s: float) -> None:
        self.counts.overdue += 1
        what = f"job {job.id} took {limit_s:g} s of processor time"
        logger.error("%s: %s; killing it", link.name, what)
        kind = errors.MediaTooLargeError if job.is_image else errors.BodyTooLargeError
        setting = "image.timeout_s" if job.is_image else "tokenizer.timeout_s"
        job.fail(kind(f"not done within {limit_s:g} s of processor time ({setting})"))
        link.kill()

    def _on_overdue(self, link: WorkerLink, job: Job) -> None:
        self.counts.overdue += 1
        limit = f"{self._job_timeout_s:g} s"
        logger.error("%s did not answer job %d within %s; killing it", link.name, job.id, limit)
        job.fail(errors.DeadlineError(f"not finished within {limit}"))
        link.kill()


def _error(failed: messages.JobFailed) -> errors.KimiServeError:
    kind = getattr(errors, failed.error, None)
    if isinstance(kind, type) and issubclass(kind, errors.RequestError):
        return kind(failed.message, hint=failed.hint, param=failed.param)
    return errors.KimiServeError(failed.message, hint=failed.hint)
