"""What a process wrote is kept, whoever reads our own log."""

from __future__ import annotations

import asyncio
import os

import pytest
from scarce import open_descriptors

from kimi_serve.preprocess.workers.log_pipe import LogPipe


class Unread:
    """Our own log, of which nobody reads the other end any more."""

    def write(self, _: str) -> None:
        raise BrokenPipeError(32, "Broken pipe")


def test_last_words_are_kept_and_all_is_closed_though_nobody_reads_our_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def run() -> None:
        log = LogPipe()
        read, write = os.pipe()
        log.follow(read)
        os.write(write, b"a line\ndouble free or corruption")
        os.close(write)
        log.close()
        log.close()
        assert list(log.tail) == ["a line", "double free or corruption"]

    before = open_descriptors()
    monkeypatch.setattr("sys.stderr", Unread())
    asyncio.run(run())
    assert open_descriptors() == before
