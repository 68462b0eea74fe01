"""Looks at the workers from outside: who was stopped, and whose work takes too much time.

Processor time and not the clock: a busy machine must not make an image look hostile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from .jobs import Job
from .process import thread_state
from .worker_link import WorkerLink

logger = logging.getLogger(__name__)

_LONGEST_TICK_S = 1.0
_TICKS_A_LIMIT = 4
# A stopped process may be continued at once; one that stays so will not answer.
STOPPED_S = 1.0
# What nobody waits for any more may finish within this much processor time.
ABANDONED_S = 2.0


class Watch:
    """Ends workers that were stopped and reports jobs over their limit; `stop` at the end."""

    def __init__(
        self,
        links: Callable[[], Sequence[WorkerLink]],
        fork_server_pid: Callable[[], int | None],
        image_timeout_s: float,
        text_timeout_s: float,
        on_costly: Callable[[WorkerLink, Job, float], None],
    ) -> None:
        self._links = links
        self._fork_server_pid = fork_server_pid
        self._image_timeout_s = image_timeout_s
        self._text_timeout_s = text_timeout_s
        self._on_costly = on_costly
        self._stopped_since: dict[int, float] = {}
        self._started_at: dict[tuple[int, int], float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def start(self, kill_fork_server: Callable[[], None]) -> None:
        """Look now and from time to time."""
        tick_s = min(
            _LONGEST_TICK_S,
            self._image_timeout_s / _TICKS_A_LIMIT,
            self._text_timeout_s / _TICKS_A_LIMIT,
        )

        def tick() -> None:
            # First of all: a look that fails must not be the last one.
            self._timer = asyncio.get_running_loop().call_later(tick_s, tick)
            try:
                self._look(kill_fork_server)
            except Exception:
                logger.exception("the workers cannot be looked at; trying again in %g s", tick_s)

        tick()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look(self, kill_fork_server: Callable[[], None]) -> None:
        links = [link for link in self._links() if link.pid is not None and not link.is_gone]
        pid = self._fork_server_pid()
        seen = {link.pid: link.kill for link in links} | {pid: kill_fork_server}
        for pid, kill in seen.items():
            if pid is not None and self._is_stopped(pid):
                logger.error("process %d does not run (SIGSTOP?); killing it", pid)
                kill()
        for gone in self._stopped_since.keys() - seen.keys():
            del self._stopped_since[gone]
        running = {
            (link.pid, job.id): (link, job)
            for link in links
            for job in (link.image_job, link.text_job)
            if link.pid is not None and job is not None
        }
        for done in self._started_at.keys() - running.keys():
            del self._started_at[done]
        for key, (link, job) in running.items():
            self._check(link, job, key)

    def _is_stopped(self, pid: int) -> bool:
        state, _ = thread_state(pid, pid)
        if not state:
            return False
        if state != "T":
            self._stopped_since.pop(pid, None)
            return False
        now = asyncio.get_running_loop().time()
        return now - self._stopped_since.setdefault(pid, now) >= STOPPED_S

    def _check(self, link: WorkerLink, job: Job, key: tuple[int, int]) -> None:
        if link.report is None or link.is_gone:
            return
        # Short texts are worked on where the socket is read, in the first thread.
        thread = link.report.image_thread if job.is_heavy else key[0]
        state, used_s = thread_state(key[0], thread)
        if not state:  # or all that the thread ever did would be charged to this job
            return
        took_s = used_s - self._started_at.setdefault(key, used_s)
        limit_s = self._image_timeout_s if job.is_image else self._text_timeout_s
        if job.answered.done():
            limit_s = min(limit_s, ABANDONED_S)
        if took_s >= limit_s:
            self._on_costly(link, job, limit_s)
