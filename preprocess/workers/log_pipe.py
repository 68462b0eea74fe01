"""What a process of ours writes: passed on by whole lines, its last ones kept."""

from __future__ import annotations

import asyncio
import codecs
import collections
import contextlib
import os
import sys
from collections.abc import Iterator

_LINES_KEPT = 40
# What is longer becomes several lines.
LINE_CHARACTERS = 1 << 16
# As much as a pipe holds, and at most so much in one turn of the event loop.
_READ_BYTES = 1 << 16
# A pipe may have been made larger, and whoever still has it may go on writing.
_LAST_READS = 16


class LogPipe:
    """The reading end of a process's log; `follow` inside the event loop, `close` at the end."""

    def __init__(self) -> None:
        self.tail: collections.deque[str] = collections.deque(maxlen=_LINES_KEPT)
        self._fd = -1
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        # Of the line that is not whole yet.
        self._pieces: list[str] = []
        self._size = 0

    def follow(self, fd: int) -> None:
        """Take over the descriptor and pass on what comes."""
        os.set_blocking(fd, False)
        self._fd = fd
        asyncio.get_running_loop().add_reader(fd, self._read)

    def close(self) -> None:
        """Pass on what is left; twice is once."""
        for _ in range(_LAST_READS):
            if not self._read():
                break
        self._end()

    def _read(self) -> bool:
        """Pass on one piece; says whether there may be more."""
        if self._fd < 0:
            return False
        try:
            data = os.read(self._fd, _READ_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self._end()
            return False
        self._show(self._decoder.decode(data))
        return True

    def _show(self, text: str) -> None:
        """Pass on whole lines only: they are mixed with those of others."""
        *ends, rest = text.split("\n")
        lines: list[str] = []
        for end in ends:
            lines += self._cut(end)
            lines.append(self._take_line())
        lines += self._cut(rest)
        self._pass_on(lines)

    def _cut(self, text: str) -> Iterator[str]:
        """Go on with a line; gives what must be lines of their own."""
        while self._size + len(text) > LINE_CHARACTERS:
            room = LINE_CHARACTERS - self._size
            self._pieces.append(text[:room])
            text = text[room:]
            yield self._take_line()
        if text:
            self._pieces.append(text)
            self._size += len(text)

    def _take_line(self) -> str:
        line = "".join(self._pieces)
        self._pieces.clear()
        self._size = 0
        return line

    def _pass_on(self, lines: list[str]) -> None:
        self.tail.extend(lines)
        if lines:
            # Nobody may read our own log any more, or its disk be full: the process goes on.
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.write("\n".join(lines) + "\n")

    def _end(self) -> None:
        if self._fd >= 0:
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
            if self._pieces:
                self._pass_on([self._take_line()])
