"""Logging that never waits for whoever reads the log: a thread writes, the rest goes on.

An engine that floods is held back for a moment, as by any full pipe; when nobody reads at all its
lines are dropped and counted. The launcher's own lines are kept.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import signal
import sys
import threading
from collections.abc import Generator

OUTPUT_LOGGER = "kimi_serve.engine"
MAX_WAITING = 4096
STALL_S = 5.0
FLUSH_S = 2.0


class _Queueing(logging.Handler):
    def __init__(self, handlers: list[logging.Handler]) -> None:
        super().__init__()
        self._handlers = handlers
        self._records: queue.SimpleQueue[logging.LogRecord | None] = queue.SimpleQueue()
        self._room = threading.Semaphore(MAX_WAITING)
        self._num_dropped = 0
        self._thread = threading.Thread(target=self._write, name="log", daemon=True)
        self._thread.start()

    def handle(self, record: logging.LogRecord) -> bool:
        """Take one record, from any thread; no lock is held while an engine waits for room."""
        if record.name == OUTPUT_LOGGER:
            if not self._room.acquire(timeout=0 if self._num_dropped else STALL_S):
                self._num_dropped += 1
                return False
            if self._num_dropped:
                self._tell_dropped()
        self._records.put(record)
        return True

    def _tell_dropped(self) -> None:
        count, self._num_dropped = self._num_dropped, 0
        text = f"{count} lines of the engine are lost: nobody read this log"
        self._records.put(
            logging.LogRecord(__name__, logging.WARNING, __file__, 0, text, None, None)
        )

    def _write(self) -> None:
        while (record := self._records.get()) is not None:
            for handler in self._handlers:
                if record.levelno >= handler.level:
                    handler.handle(record)
            if record.name == OUTPUT_LOGGER:
                self._room.release()

    def finish(self) -> None:
        """Write what waits; give up on a reader that does not read, so that the process can end."""
        self._records.put(None)
        self._thread.join(FLUSH_S)
        if self._thread.is_alive() and self._thread.ident is not None:
            # The write is interrupted and repeated by Python, then on a file that takes all.
            signal.signal(signal.SIGUSR1, lambda _number, _frame: None)
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, sys.stderr.fileno())
            os.close(null)
            signal.pthread_kill(self._thread.ident, signal.SIGUSR1)
            self._thread.join(FLUSH_S)


@contextlib.contextmanager
def queued_logging() -> Generator[None]:
    """Put a queue before the handlers of the root logger, until the end of the block."""
    root = logging.getLogger()
    handlers = root.handlers[:]
    queueing = _Queueing(handlers)
    root.handlers[:] = [queueing]
    try:
        yield
    finally:
        root.handlers[:] = handlers
        queueing.finish()
