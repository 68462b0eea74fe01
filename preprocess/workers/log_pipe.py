"""What a process of ours writes: passed on by whole lines, its last ones kept."""

from __future__ import annotations

import asyncio
import codecs
import collections
import contextlib
import os
import sys

_LINES_KEPT = 40


class LogPipe:
    """The reading end of a process's log; `follow` inside the event loop, `close` at the end."""

    def __init__(self) -> None:
        self.tail: collections.deque[str] = collections.deque(maxlen=_LINES_KEPT)
        self._fd = -1
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._line = ""

    def follow(self, fd: int) -> None:
        """Take over the descriptor and pass on what comes."""
        os.set_blocking(fd, False)
        self._fd = fd
        asyncio.get_running_loop().add_reader(fd, self._read)

    def close(self) -> None:
        """Pass on what is left; twice is once."""
        self._read()
        self._end()

    def _read(self) -> None:
        while self._fd >= 0:
            try:
                data = os.read(self._fd, 1 << 16)
            except BlockingIOError:
                return
            if not data:
                self._end()
                return
            self._show(self._decoder.decode(data))

    def _show(self, text: str) -> None:
        """Pass on whole lines only: they are mixed with those of others."""
        *lines, self._line = (self._line + text).split("\n")
        for line in lines:
            self.tail.append(line)
            # Nobody may read our own log any more, or its disk be full: the process goes on.
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.write(line + "\n")

    def _end(self) -> None:
        if self._fd >= 0:
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
            if self._line:
                self._show("\n")
