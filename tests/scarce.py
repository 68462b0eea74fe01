"""A machine that has nothing left for a moment: no descriptor, no thread."""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import threading
from collections.abc import Generator

import pytest


@contextlib.contextmanager
def descriptors_left(count: int = 0) -> Generator[None]:
    """Let this process open `count` more descriptors, and no other, for the block."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    held = [os.open("/dev/null", os.O_RDONLY)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (held[0] + 64, hard))
    try:
        with contextlib.suppress(OSError):
            while True:
                held.append(os.dup(held[0]))
        for _ in range(count):
            os.close(held.pop())
        yield
    finally:
        for fd in held:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def no_threads() -> Generator[None]:
    """Have every start of a thread fail as at the limit of processes, which root does not have."""

    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        yield


def open_descriptors() -> frozenset[str]:
    """Name what this process has open; what other tests left to the collector is not counted."""
    gc.collect()
    return frozenset(os.listdir("/proc/self/fd"))
