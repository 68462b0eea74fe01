"""The engine's output: read in a thread, passed on by logging, the last lines kept."""

from __future__ import annotations

import collections
import contextlib
import logging
import os
import selectors
import threading
from collections.abc import Callable, Sequence

from .cleaning import Cleaner, LineSplitter
from .line_levels import LineLevels
from .log_queue import OUTPUT_LOGGER

KEPT_LINES = 50
_CHUNK = 1 << 16
_END_TIMEOUT_S = 2.0

logger = logging.getLogger(OUTPUT_LOGGER)


class _Stream:
    def __init__(self, cleaner: Cleaner) -> None:
        self.splitter = LineSplitter(cleaner)
        self.levels = LineLevels()


class Output:
    """Two pipes and the thread that empties them.

    `on_line` is called in that thread with every line, before it is logged.
    """

    def __init__(self, name: str, secrets: Sequence[str], on_line: Callable[[str], None]) -> None:
        self._name = name
        self._on_line = on_line
        self._last: collections.deque[str] = collections.deque(maxlen=KEPT_LINES)
        self._selector = selectors.DefaultSelector()
        self._stop, self._stop_write = os.pipe()
        self._selector.register(self._stop, selectors.EVENT_READ)
        cleaner = Cleaner(secrets)
        writers: list[int] = []
        for _ in range(2):
            reader, writer = os.pipe()
            os.set_blocking(reader, False)
            self._selector.register(reader, selectors.EVENT_READ, _Stream(cleaner))
            writers.append(writer)
        self.writers = (writers[0], writers[1])
        self._streams = [
            key.data for key in self._selector.get_map().values() if key.data is not None
        ]
        self._thread = threading.Thread(target=self._read_all, name="engine output", daemon=True)

    def start(self) -> None:
        """Begin to read; the write ends are the engine's from now on."""
        for writer in self.writers:
            os.close(writer)
        self._thread.start()

    def last_lines(self) -> tuple[str, ...]:
        """Give the last lines, with those that have no end yet."""
        unfinished = (stream.splitter.rest() for stream in self._streams)
        return (*self._last, *(line for line in unfinished if line.strip()))[-KEPT_LINES:]

    def finish(self) -> None:
        """Read to the end, for which the writers must have closed; wait a little for it only."""
        self._thread.join(_END_TIMEOUT_S)
        os.close(self._stop_write)
        self._thread.join(_END_TIMEOUT_S)

    def _read_all(self) -> None:
        open_streams = len(self._streams)
        with contextlib.ExitStack() as closing:
            closing.callback(self._close)
            while open_streams:
                for key, _ in self._selector.select():
                    if key.fd == self._stop:
                        return
                    if not self._read(key.fd, key.data):
                        self._selector.unregister(key.fd)
                        os.close(key.fd)
                        open_streams -= 1

    def _read(self, fd: int, stream: _Stream) -> bool:
        try:
            data = os.read(fd, _CHUNK)
        except BlockingIOError:
            return True
        lines = stream.splitter.feed(data) if data else [stream.splitter.finish()]
        for line in lines:
            self._pass_on(line, stream)
        return bool(data)

    def _pass_on(self, line: str, stream: _Stream) -> None:
        level = stream.levels.level(line)
        if not line.strip():
            return
        self._last.append(line)
        self._on_line(line)
        logger.log(level, "%s: %s", self._name, line)

    def _close(self) -> None:
        for key in list(self._selector.get_map().values()):
            os.close(key.fd)
        self._selector.close()
