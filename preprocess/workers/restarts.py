"""When something that ended is started again: pauses that grow, and a limit. Pure."""

from __future__ import annotations

import collections

WINDOW_S = 60.0
# By how often it ended within the window. The first ends cost no time: they are accidents.
PAUSES_S = (0.0, 0.0, 0.0, 0.1, 0.2, 0.5, 1.0, 2.0)
# What was of use is missed while it is away.
LONGEST_USEFUL_PAUSE_S = 0.2
MAX_USELESS = 10


class RestartPolicy:
    """The ends of one process and what follows from them."""

    def __init__(self) -> None:
        self._ends: collections.deque[float] = collections.deque()
        self._useless_in_a_row = 0

    def next_pause(self, now: float, *, was_useful: bool) -> float | None:
        """Note an end at `now` (seconds); give the pause before the next start, None to give up.

        What was of use may end as often as it likes: it is killed from outside, or by what it is
        given. What is of no use ten times in a row will not be the eleventh time.
        """
        self._useless_in_a_row = 0 if was_useful else self._useless_in_a_row + 1
        if self._useless_in_a_row > MAX_USELESS:
            return None
        while self._ends and now - self._ends[0] > WINDOW_S:
            self._ends.popleft()
        pause_s = PAUSES_S[min(len(self._ends), len(PAUSES_S) - 1)]
        self._ends.append(now)
        return min(pause_s, LONGEST_USEFUL_PAUSE_S) if was_useful else pause_s
