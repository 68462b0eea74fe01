"""Which worker gets which job, and when: one queue of images, one of texts."""

from __future__ import annotations

import asyncio
import collections
import itertools
from collections.abc import Callable, Iterable, Sequence

from kimi_serve.schemas import errors, messages

from .jobs import Death, Job
from .worker_link import WorkerLink

MakeMessage = Callable[[int, int], messages.Message]


class Dispatcher:
    """Jobs that no worker has yet.

    A worker has one image and one text at most, so a text never waits for an image and a job's
    clock starts when its worker does.
    """

    def __init__(self, job_timeout_s: float, on_overdue: Callable[[WorkerLink, Job], None]) -> None:
        self._job_timeout_s = job_timeout_s
        self._on_overdue = on_overdue
        self._images: collections.deque[Job] = collections.deque()
        self._texts: collections.deque[Job] = collections.deque()
        self._ids = itertools.count(1)

    @property
    def num_queued(self) -> int:
        return len(self._images) + len(self._texts)

    def add(self, payload: bytes, make: MakeMessage, *, is_image: bool) -> Job:
        """Queue a job; `make` gives its message from id and slot."""
        job_id = next(self._ids)
        job = Job(
            id=job_id,
            payload=payload,
            is_image=is_image,
            make=lambda slot: make(job_id, slot),
            answered=asyncio.get_running_loop().create_future(),
        )
        self._queue_of(job).append(job)
        return job

    def forget(self, job: Job) -> None:
        """Drop a job that nobody waits for any more, unless a worker has it already."""
        queue = self._queue_of(job)
        if job in queue:
            queue.remove(job)

    def send_elsewhere(self, job: Job, death: Death) -> bool:
        """Queue the job of a dead worker again, first in line, unless it had its chances."""
        job.stop_clock()
        job.deaths.append(death)
        verdict = job.verdict()
        if verdict is not None:
            job.fail(verdict)
        if job.answered.done():
            return False
        self._queue_of(job).appendleft(job)
        return True

    def fail_all(self, reason: str) -> None:
        """Give up everything that waits."""
        for job in itertools.chain(self._images, self._texts):
            job.fail(errors.UnavailableError(reason))
        self._images.clear()
        self._texts.clear()

    def pump(self, links: Iterable[WorkerLink]) -> None:
        """Give every queued job to a worker that can take it now."""
        usable = [link for link in links if link.is_usable]
        for queue in (self._texts, self._images):
            self._pump(queue, usable)

    def _pump(self, queue: collections.deque[Job], usable: Sequence[WorkerLink]) -> None:
        waiting: list[Job] = []
        while queue and (
            idle := [link for link in usable if link.can_take(image=queue is self._images)]
        ):
            job = queue.popleft()
            link = _choose(job, idle, usable)
            if link is None:
                waiting.append(job)
            else:
                self._send(job, link)
        queue.extendleft(reversed(waiting))

    def _send(self, job: Job, link: WorkerLink) -> None:
        if job.answered.done():  # nobody waits for it any more
            return
        link.send(job)
        job.overdue = asyncio.get_running_loop().call_later(
            self._job_timeout_s, self._on_overdue, link, job
        )

    def _queue_of(self, job: Job) -> collections.deque[Job]:
        return self._images if job.is_image else self._texts


def _choose(
    job: Job, idle: Sequence[WorkerLink], usable: Sequence[WorkerLink]
) -> WorkerLink | None:
    """Take the least busy worker; not one that died with the job while there is another."""
    tried = {death.index for death in job.deaths}
    fresh = [link for link in idle if link.spec.index not in tried]
    if not fresh and any(link.spec.index not in tried for link in usable):
        return None
    return min(fresh or idle, key=lambda link: link.state == "busy")
