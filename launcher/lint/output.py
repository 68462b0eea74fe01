"""Writes a report to a file or to standard output."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import TextIO, cast


def write_output(text: str | bytes, output: str) -> None:
    """Write a report to a file, or to standard output for `-`; raises OSError or ValueError."""
    data = text.encode("utf-8", "replace") if isinstance(text, str) else text
    if output != "-":
        Path(output).write_bytes(data)
        return
    stdout = cast("TextIO | None", sys.stdout)  # None when it was closed at the start
    if stdout is None:
        raise OSError(errno.EBADF, "standard output is closed")
    stdout.flush()
    stream = getattr(stdout, "buffer", None)
    if stream is None:
        stdout.write(data.decode("utf-8", "replace"))
        return
    try:
        stream.write(data)
        stream.flush()
    except BrokenPipeError:
        raise
    except OSError:
        abandon_stdout()
        raise


def abandon_stdout() -> None:
    """Drop what standard output could not take: Python would try it once again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
