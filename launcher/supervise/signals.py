"""SIGTERM and SIGINT, noted for the event loop to act on: the first stops, the second cuts."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Generator
from types import FrameType

_NUMBERS = (signal.SIGTERM, signal.SIGINT)
_ENDING = (*_NUMBERS, signal.SIGHUP)


class StopSignals:
    """The signals that came; made inside a running event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.first = asyncio.Event()
        self.second = asyncio.Event()
        self.name = ""

    @contextlib.contextmanager
    def caught(self) -> Generator[None]:
        """Catch them until the end of the block, and ignore them from then on: the end is near.

        asyncio's own handlers end with the loop, and Python's own with the interpreter: both leave
        the default ones for a moment, in which a second SIGTERM would make an orderly stop look
        like a failure. What is ignored stays so.
        """
        # The kernel may give a signal to any thread; only the wakeup descriptor wakes this one.
        reader, writer = socket.socketpair()
        for end in (reader, writer):
            end.setblocking(False)
        self._loop.add_reader(reader.fileno(), reader.recv, 4096)
        earlier_fd = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        for number in _NUMBERS:
            signal.signal(number, self._note)
        try:
            yield
        finally:
            for number in _ENDING:
                signal.signal(number, signal.SIG_IGN)
            signal.set_wakeup_fd(earlier_fd)
            self._loop.remove_reader(reader.fileno())
            reader.close()
            writer.close()

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self._loop.call_soon_threadsafe(self._take, signal.Signals(number).name)

    def _take(self, name: str) -> None:
        self.name = name
        (self.second if self.first.is_set() else self.first).set()
