"""What workers are asked to do, and the end of a job: answered, refused, or given up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kimi_serve.schemas import errors, messages

# An image that crashes this many workers is refused: it is the image that crashes them. A signal
# from outside looks like a crash too, so fewer would blame images for what a stray signal does.
MAX_CRASHES = 5
# Kills from outside say nothing about the job, so it survives more of those.
MAX_DEATHS = 16
# A job that saw this many workers end may be what ends them: one such job runs at a time, so that
# hostile images take down one worker and never the fleet.
SUSPECT_DEATHS = 2


@dataclass(frozen=True, slots=True)
class Death:
    """The end of a worker: how, whether of its own making, and whether it exited by itself."""

    index: int
    how: str
    is_crash: bool
    has_exited: bool = False


@dataclass(eq=False, slots=True)
class Job:
    """Something that a worker is asked to do, kept until it is answered.

    `slot` is where its worker puts the pixels, -1 for a text. Jobs of one `request` share a turn.
    """

    id: int
    payload: bytes
    is_image: bool
    make: Callable[[int], messages.Message]
    answered: asyncio.Future[Any]
    request: object
    slot: int = -1
    deaths: list[Death] = field(default_factory=list[Death])
    overdue: asyncio.TimerHandle | None = None

    @property
    def is_long_text(self) -> bool:
        """Whether it is a text that takes the place of an image."""
        return not self.is_image and messages.is_long_text(self.payload)

    @property
    def is_heavy(self) -> bool:
        """Whether it takes a worker's place for images, and no other."""
        return self.is_image or self.is_long_text

    @property
    def is_suspect(self) -> bool:
        """Whether it may be what ends its workers."""
        return len(self.deaths) >= SUSPECT_DEATHS

    def answer(self, value: object) -> bool:
        """Hand over the answer; False when nobody waits for it any more."""
        if self.answered.done():
            return False
        self.answered.set_result(value)
        return True

    def fail(self, error: errors.KimiServeError) -> None:
        """Hand over an error, if anybody still waits."""
        if not self.answered.done():
            self.answered.set_exception(error)

    def stop_clock(self) -> None:
        if self.overdue is not None:
            self.overdue.cancel()

    def verdict(self) -> errors.RequestError | None:
        """Say why the job is not to be tried again, None while it may be."""
        crashes = sum(death.is_crash for death in self.deaths)
        ends = ", ".join(death.how for death in self.deaths)
        if self.is_image and crashes >= MAX_CRASHES:
            return errors.MediaError(f"refused: it crashed {crashes} workers ({ends})")
        if crashes >= MAX_CRASHES or len(self.deaths) >= MAX_DEATHS:
            message = f"{len(self.deaths)} workers ended while they had it ({ends})"
            return errors.UnavailableError(message)
        return None
