"""When something that ended is started again: pauses that grow, and limits. Pure."""

from __future__ import annotations

import collections
from typing import Literal

WINDOW_S = 60.0
# By how often it ended within the window. The first ends cost no time: they are accidents.
PAUSES_S = (0.0, 0.0, 0.0, 0.1, 0.2, 0.5, 1.0, 2.0)
# What was of use, or was killed by somebody, is missed while it is away.
LONGEST_USEFUL_PAUSE_S = 0.2
MAX_USELESS = 10
# Kills from outside say nothing about what is killed; only a machine that never stops is given up.
MAX_KILLED = 100
# While somebody waits for the first start to be complete, both are fewer.
MAX_USELESS_STARTING = 2
MAX_KILLED_STARTING = 10

# "useful": it had work, or lived; "killed": idle or starting, by somebody else; "useless": the same
# of its own making.
EndKind = Literal["useful", "killed", "useless"]


class RestartPolicy:
    """The ends of one process and what follows from them."""

    def __init__(self) -> None:
        self._ends: collections.deque[float] = collections.deque()
        self._useless_in_a_row = 0
        self._killed_in_a_row = 0

    def next_pause(self, now: float, kind: EndKind, *, is_starting: bool = False) -> float | None:
        """Note an end at `now` (seconds); give the pause before the next start, None to give up.

        What was of use may end as often as it likes: it is killed from outside, or by what it is
        given. What is of no use ten times in a row will not be the eleventh time.
        """
        if kind == "useful":
            self._useless_in_a_row = self._killed_in_a_row = 0
        elif kind == "killed":
            self._killed_in_a_row += 1
        else:
            self._useless_in_a_row += 1
        if self._useless_in_a_row > (MAX_USELESS_STARTING if is_starting else MAX_USELESS):
            return None
        if self._killed_in_a_row > (MAX_KILLED_STARTING if is_starting else MAX_KILLED):
            return None
        while self._ends and now - self._ends[0] > WINDOW_S:
            self._ends.popleft()
        pause_s = PAUSES_S[min(len(self._ends), len(PAUSES_S) - 1)]
        self._ends.append(now)
        return pause_s if kind == "useless" else min(pause_s, LONGEST_USEFUL_PAUSE_S)
