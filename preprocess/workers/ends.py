"""What the end of a worker says: whether another like it may be of use, and what failed."""

from __future__ import annotations

import time

from kimi_serve.schemas import errors

from .jobs import Death
from .restarts import EndKind
from .worker_link import WorkerLink

# A worker that lived this long was of use, with work or without.
USEFUL_S = 5.0


def end_kind(link: WorkerLink, death: Death) -> EndKind:
    """Say whether another like it may be of use: whose work ends it is judged by its work."""
    lived = link.ready_at is not None and time.monotonic() - link.ready_at >= USEFUL_S
    if link.num_answers > 0 or link.has_work or lived:
        return "useful"
    return "useless" if death.is_crash or link.is_late else "killed"


def start_error(link: WorkerLink, how: str) -> errors.WorkerStartError:
    """Say why no other is started, with what the worker itself said last."""
    if link.failure is not None:
        detail = link.failure.traceback or link.failure.message
        message = f"{link.name} cannot start: {detail}"
        return errors.WorkerStartError(message, hint=link.failure.hint)
    log = "\n".join(link.log.tail) or "(it logged nothing)"
    when = "ended before it was ready" if link.report is None else "ends again and again, idle"
    return errors.WorkerStartError(f"{link.name} {when}: {how}\n{log}")
