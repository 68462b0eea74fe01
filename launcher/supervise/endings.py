"""The ways in which an engine's first process is over."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Exited:
    """The engine's first process ended; `status` is what wait(2) gives.

    `num_left` is how many processes it left behind, which were then ended.
    """

    status: int
    num_left: int = 0


@dataclass(frozen=True, slots=True)
class NotStarted:
    """The kernel did not run the command."""

    errno: int
    reason: str


@dataclass(frozen=True, slots=True)
class KeeperLost:
    """The keeper is heard no more: it was killed, and the engine with it, or cannot end it."""


Ending = Exited | NotStarted | KeeperLost
