"""Which worker gets which job, and when: a queue of images, one of texts, one of suspects."""

from __future__ import annotations

import asyncio
import collections
import itertools
from collections.abc import Callable, Iterable, Sequence

from kimi_serve.schemas import errors, messages

from .jobs import Death, Job
from .queues import FairQueue
from .worker_link import WorkerLink

MakeMessage = Callable[[int, int], messages.Message]


class Dispatcher:
    """Jobs that no worker has yet.

    A worker has one image and one text at most, so a text never waits for an image and a job's
    clock starts when its worker does. A long text is queued with the images.
    """

    def __init__(self, job_timeout_s: float, on_overdue: Callable[[WorkerLink, Job], None]) -> None:
        self._job_timeout_s = job_timeout_s
        self._on_overdue = on_overdue
        self._images = FairQueue()
        self._texts = FairQueue()
        self._suspects: collections.deque[Job] = collections.deque()
        self._ids = itertools.count(1)

    @property
    def num_queued(self) -> int:
        return len(self._images) + len(self._texts) + len(self._suspects)

    @property
    def has_images(self) -> bool:
        """Whether an image waits for a worker."""
        return bool(self._images) or bool(self._suspects)

    def add(
        self, payload: bytes, make: MakeMessage, *, is_image: bool, request: object = None
    ) -> Job:
        """Queue a job; `make` gives its message from id and slot.

        Jobs of one `request` take turns with those of others; without one it stands for itself.
        """
        job_id = next(self._ids)
        job = Job(
            id=job_id,
            payload=payload,
            is_image=is_image,
            make=lambda slot: make(job_id, slot),
            answered=asyncio.get_running_loop().create_future(),
            request=job_id if request is None else request,
        )
        self._queue_of(job).add(job)
        return job

    def forget(self, job: Job) -> None:
        """Drop a job that nobody waits for any more, unless a worker has it already."""
        if not self._queue_of(job).remove(job) and job in self._suspects:
            self._suspects.remove(job)

    def send_elsewhere(self, job: Job, death: Death) -> bool:
        """Queue the job of a dead worker again, first in line, unless it had its chances."""
        job.stop_clock()
        job.deaths.append(death)
        verdict = job.verdict()
        if verdict is not None:
            job.fail(verdict)
        if job.answered.done():
            return False
        if job.is_suspect:
            self._suspects.append(job)
        else:
            self._queue_of(job).put_back(job)
        return True

    def fail_all(self, reason: str) -> None:
        """Give up everything that waits."""
        for job in itertools.chain(self._images, self._texts, self._suspects):
            job.fail(errors.UnavailableError(reason))
        for queue in (self._images, self._texts, self._suspects):
            queue.clear()

    def pump(self, links: Iterable[WorkerLink]) -> None:
        """Give every queued job to a worker that can take it now."""
        usable = [link for link in links if link.is_usable]
        self._pump_suspects(usable)
        for queue in (self._texts, self._images):
            self._pump(queue, usable)

    def _pump_suspects(self, usable: Sequence[WorkerLink]) -> None:
        while self._suspects and not any(link.has_suspect for link in usable):
            job = self._suspects[0]
            idle = [link for link in usable if link.can_take(image=job.is_heavy)]
            link = _choose(job, idle, usable) if idle else None
            if link is None:
                return
            self._send(self._suspects.popleft(), link)

    def _pump(self, queue: FairQueue, usable: Sequence[WorkerLink]) -> None:
        waiting: list[Job] = []
        while queue and (
            idle := [link for link in usable if link.can_take(image=queue is self._images)]
        ):
            job = queue.pop()
            link = _choose(job, idle, usable)
            # One at a time: the other workers are for images.
            if job.is_long_text and any(each.has_long_text for each in usable):
                link = None
            if link is None:
                waiting.append(job)
            else:
                self._send(job, link)
        for job in reversed(waiting):
            queue.put_back(job)

    def _send(self, job: Job, link: WorkerLink) -> None:
        if job.answered.done():  # nobody waits for it any more
            return
        link.send(job)
        job.overdue = asyncio.get_running_loop().call_later(
            self._job_timeout_s, self._on_overdue, link, job
        )

    def _queue_of(self, job: Job) -> FairQueue:
        return self._images if job.is_heavy else self._texts


def _choose(
    job: Job, idle: Sequence[WorkerLink], usable: Sequence[WorkerLink]
) -> WorkerLink | None:
    """Take the least busy worker; not one that died with the job while there is another."""
    tried = {death.index for death in job.deaths}
    fresh = [link for link in idle if link.spec.index not in tried]
    if not fresh and any(link.spec.index not in tried for link in usable):
        return None
    return min(fresh or idle, key=lambda link: link.state == "busy")
