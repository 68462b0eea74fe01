"""Writes a report to a file or to standard output."""

from __future__ import annotations

import sys
from pathlib import Path


def write_output(text: str, output: str) -> None:
    """Write a report to a file, or to standard output for `-`."""
    data = text.encode("utf-8", "replace")
    if output == "-":
        sys.stdout.flush()
        stream = getattr(sys.stdout, "buffer", None)
        if stream is None:
            sys.stdout.write(data.decode("utf-8"))
        else:
            stream.write(data)
            stream.flush()
    else:
        Path(output).write_bytes(data)
