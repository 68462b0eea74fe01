"""Log lines of the launcher and of the workers: one shape, set up once per process."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import TextIO

from kimi_serve.schemas.vocabulary import LogFormat, LogLevel


class _TextFormatter(logging.Formatter):
    def __init__(self, process: str) -> None:
        super().__init__(
            f"%(asctime)s.%(msecs)03dZ %(levelname)-7s {process}: %(message)s",
            "%Y-%m-%dT%H:%M:%S",
        )
        self.converter = time.gmtime


class _JsonFormatter(logging.Formatter):
    def __init__(self, process: str) -> None:
        super().__init__()
        self.process = process

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": round(record.created, 3),
            "level": record.levelname.lower(),
            "process": self.process,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def configure(
    level: LogLevel,
    format: LogFormat,
    *,
    process: str,
    stream: TextIO | None = None,
) -> None:
    """Send everything from `level` up to `stream` (stderr), replacing earlier handlers."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_JsonFormatter(process) if format == "json" else _TextFormatter(process))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
