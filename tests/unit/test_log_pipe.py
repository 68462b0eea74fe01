"""What a process wrote is kept, whoever reads our own log."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os

import pytest
from scarce import open_descriptors

from kimi_serve.preprocess.workers.log_pipe import LINE_CHARACTERS, LogPipe


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
    assert open_descriptors() <= before


def test_a_line_without_end_becomes_lines_and_everybody_else_has_a_turn(
    capsys: pytest.CaptureFixture[str],
) -> None:
    size = 20 * LINE_CHARACTERS + 3

    async def run() -> None:
        log = LogPipe()
        read, write = os.pipe()
        fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 1 << 20)
        log.follow(read)
        os.set_blocking(write, False)
        left = memoryview(b"\n" + b"x" * size + b"\nend\n")
        left = left[os.write(write, left) :]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(log.tail) < 10  # of the 16 that were there
        while left:
            with contextlib.suppress(BlockingIOError):
                left = left[os.write(write, left) :]
            await asyncio.sleep(0)
        os.close(write)
        log.close()
        assert [len(line) for line in log.tail] == [0, *[LINE_CHARACTERS] * 20, 3, 3]

    asyncio.run(run())
    shown = capsys.readouterr().err
    assert (shown.count("x"), shown.count("\n")) == (size, 23)


def test_a_line_of_just_the_length_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    async def run() -> None:
        log = LogPipe()
        read, write = os.pipe()
        log.follow(read)
        for piece in (b"x" * (LINE_CHARACTERS - 1), b"\xc3", b"\xa4", b"\n"):
            os.write(write, piece)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        os.close(write)
        log.close()
        assert list(log.tail) == ["x" * (LINE_CHARACTERS - 1) + "\u00e4"]

    asyncio.run(run())
    assert capsys.readouterr().err.count("\n") == 1
