"""A stop that leaves nothing behind: no worker, no other child, no folder of images."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Generator
from types import FrameType

# What ends a program at once, without a word to whoever has something to tidy; SIGINT does not.
_ENDING = (signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def unwound_by_signals() -> Generator[None]:
    """Let the signals that stop a program end the block as an exception does.

    For the main thread. What is ignored, as SIGHUP by nohup, stays so.
    """
    taken = [number for number in _ENDING if signal.getsignal(number) is signal.SIG_DFL]
    for number in taken:
        signal.signal(number, _exit)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


def _exit(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)  # as a shell says it of a program that a signal ended
