"""Jobs in the order in which they are given out: requests take turns, so none waits for all."""

from __future__ import annotations

import collections
from collections.abc import Iterator

from .jobs import Job


class FairQueue:
    """One line of jobs for each request, and the requests in a circle.

    A request of many images is served between the others instead of before them.
    """

    def __init__(self) -> None:
        self._lines: collections.OrderedDict[object, collections.deque[Job]] = (
            collections.OrderedDict()
        )

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def __bool__(self) -> bool:
        return bool(self._lines)

    def __iter__(self) -> Iterator[Job]:
        for line in self._lines.values():
            yield from line

    def add(self, job: Job) -> None:
        """Put a job at the end of its request's line."""
        self._lines.setdefault(job.request, collections.deque()).append(job)

    def put_back(self, job: Job) -> None:
        """Make a job the next one."""
        self._lines.setdefault(job.request, collections.deque()).appendleft(job)
        self._lines.move_to_end(job.request, last=False)

    def pop(self) -> Job:
        """Take the next job; its request goes to the end of the circle."""
        request, line = next(iter(self._lines.items()))
        job = line.popleft()
        self._lines.move_to_end(request)
        if not line:
            del self._lines[request]
        return job

    def remove(self, job: Job) -> bool:
        """Take a job out of the middle; False when it is not here."""
        line = self._lines.get(job.request)
        if line is None or job not in line:
            return False
        line.remove(job)
        if not line:
            del self._lines[job.request]
        return True

    def clear(self) -> None:
        self._lines.clear()
