"""When an engine that failed is started again. Pure: the times are handed in."""

from __future__ import annotations

from dataclasses import dataclass

from kimi_serve.schemas.vocabulary import RestartPolicy

LONGEST_PAUSE_S = 60.0
# An engine that served this long has recovered: what follows is a new story.
RECOVERED_S = 600.0


@dataclass
class Restarts:
    """The failures in a row, and what follows from them."""

    policy: RestartPolicy
    limit: int
    first_pause_s: float
    in_a_row: int = 0
    total: int = 0
    _was_ready: bool = False

    def next_pause_s(self, *, ready_for_s: float | None, is_usage: bool) -> float | None:
        """Give the pause before the next start, None for none.

        `ready_for_s` is how long the engine served, None when it was never ready. What the text of
        the command gets wrong is tried again only if the same command has served before.
        """
        self._was_ready = self._was_ready or ready_for_s is not None
        if self.policy == "never" or (is_usage and not self._was_ready):
            return None
        if ready_for_s is not None and ready_for_s >= RECOVERED_S:
            self.in_a_row = 0
        if self.in_a_row >= self.limit:
            return None
        # The exponent is bounded: a float has no 2 ** 1024.
        pause_s = self.first_pause_s * 2.0 ** min(self.in_a_row, 64)
        self.in_a_row += 1
        self.total += 1
        return min(pause_s, max(LONGEST_PAUSE_S, self.first_pause_s))
