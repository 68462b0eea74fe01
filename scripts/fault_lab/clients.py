"""Clients that send known requests and judge what comes back."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from .corpus import Known
from .http_client import Connection, LostError

# Some clients leave before they have their answer.
CANCELLED_SHARE = 0.05
_LONGEST_PATIENCE_S = 0.2


@dataclass(slots=True)
class Figures:
    """What became of the requests."""

    sent: int = 0
    answered: int = 0
    cancelled: int = 0
    refused_429: int = 0
    lost: list[str] = field(default_factory=list[str])
    wrong: list[str] = field(default_factory=list[str])
    by_kind: collections.Counter[str] = field(default_factory=collections.Counter[str])
    slowest_s: dict[str, float] = field(default_factory=dict[str, float])

    @property
    def is_clean(self) -> bool:
        return not self.lost and not self.wrong

    def lines(self) -> list[str]:
        """Give the figures for a reader."""
        counts = [
            f"requests sent      {self.sent}",
            f"answered right     {self.answered - len(self.wrong)}",
            f"cancelled by us    {self.cancelled}",
            f"told to wait (429) {self.refused_429}",
            f"lost               {len(self.lost)}",
            f"wrong              {len(self.wrong)}",
        ]
        kinds = [
            f"  {kind}: {count}, slowest {self.slowest_s.get(kind, 0):.2f} s"
            for kind, count in sorted(self.by_kind.items())
        ]
        return [*counts, *kinds, *(f"  LOST {line}" for line in self.lost[:20])] + [
            f"  WRONG {line}" for line in self.wrong[:20]
        ]


class Clients:
    """So many clients at once until `is_over`; each sends its next request when it can."""

    def __init__(
        self,
        address: tuple[str, int],
        draw: Callable[[], Known],
        is_over: Callable[[], bool],
        *,
        cancelled_share: float = 0.0,
        seed: int = 0,
    ) -> None:
        self._address = address
        self._draw = draw
        self._is_over = is_over
        self._cancelled_share = cancelled_share
        self._random = random.Random(seed)
        self.figures = Figures()

    async def run(self, count: int) -> None:
        """Run all clients to the end."""
        async with asyncio.TaskGroup() as group:
            for _ in range(count):
                group.create_task(self._client())

    async def _client(self) -> None:
        connection = Connection(*self._address)
        while not self._is_over():
            known = self._draw()
            if self._random.random() < self._cancelled_share:
                await self._leave_early(connection, known)
            else:
                await self._ask(connection, known)
        connection.close()

    async def _leave_early(self, connection: Connection, known: Known) -> None:
        self.figures.sent += 1
        self.figures.cancelled += 1
        patience_s = self._random.uniform(0, _LONGEST_PATIENCE_S)
        # Whatever comes back is nobody's business: this client does not look.
        with contextlib.suppress(TimeoutError, LostError):
            async with asyncio.timeout(patience_s):
                await connection.post(known.path, known.body, known.accept)
        connection.close()

    async def _ask(self, connection: Connection, known: Known) -> None:
        figures = self.figures
        figures.sent += 1
        figures.by_kind[known.kind] += 1
        started = time.monotonic()
        try:
            answer = await connection.post(known.path, known.body, known.accept)
            while answer.status == 429:
                figures.refused_429 += 1
                await asyncio.sleep(float(answer.headers["retry-after"]))
                answer = await connection.post(known.path, known.body, known.accept)
        except LostError as error:
            figures.lost.append(f"{known.kind}: {error}")
            return
        took_s = time.monotonic() - started
        figures.slowest_s[known.kind] = max(took_s, figures.slowest_s.get(known.kind, 0.0))
        if answer.status in (499, 500, 502, 503, 504):
            figures.lost.append(f"{known.kind}: {answer.status} {answer.body[:300]!r}")
            return
        figures.answered += 1
        wrong = known.check(answer)
        if wrong is not None:
            figures.wrong.append(f"{known.kind}: {wrong}")
