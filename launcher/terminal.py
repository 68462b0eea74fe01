"""Whether SIGHUP means what it first meant: the terminal is gone."""

from __future__ import annotations

import os


class Terminal:
    """The terminal that this process was started from, if any."""

    def __init__(self) -> None:
        self._was_there = _has_terminal()

    @property
    def is_gone(self) -> bool:
        """Whether there was one and it was closed."""
        return self._was_there and not _has_terminal()


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True
