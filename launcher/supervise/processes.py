"""What Linux tells of our descendants, and their end; standard library only, the keeper needs it.

Only direct children are ever signalled by number here: their numbers cannot pass to strangers
before we have waited for them. Everything deeper becomes a child when its parents are dead.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Collection
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_POLL_S = 0.02
_DEFAULT = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGCHLD)


def become_subreaper() -> None:
    """Become the parent of every descendant that loses its own."""
    prctl(_PR_SET_CHILD_SUBREAPER, 1)


def prctl(option: int, value: int) -> None:
    """Call prctl(2)."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option})")


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent ends."""
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the call
        os._exit(1)


def children(pid: int) -> list[int]:
    """List the children of a process, those that wait to be reaped too."""
    try:
        found: list[int] = []
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as file:
                found.extend(int(word) for word in file.read().split())
    except ProcessLookupError:
        return []
    except FileNotFoundError:  # the process ended, or the kernel has no such file
        return _children_by_scan(pid)
    return found


def _children_by_scan(pid: int) -> list[int]:
    names = filter(str.isdigit, os.listdir("/proc"))
    return [int(name) for name in names if _stat(int(name))[1:2] == [str(pid)]]


def descendants(pid: int) -> list[int]:
    """List everything below a process."""
    found: list[int] = []
    todo = [pid]
    while todo:
        below = children(todo.pop())
        found += below
        todo += below
    return found


_PF_EXITING = 0x4


def num_that_stay() -> int:
    """Count the descendants of this process that are not about to end."""
    return sum(not _is_ending(pid) for pid in descendants(os.getpid()))


def _is_ending(pid: int) -> bool:
    fields = _stat(pid)
    return not fields or fields[0] in "ZX" or bool(int(fields[6]) & _PF_EXITING)


def is_stopped(pid: int) -> bool:
    """Tell whether a process was stopped by a signal or by a debugger."""
    return _stat(pid)[:1] in (["T"], ["t"])


def _stat(pid: int) -> list[str]:
    """Give what follows the name, which may hold anything: state, parent, group, session, ..."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return []
    return text.rpartition(b")")[2].decode("ascii", "replace").split()


def reset_signals() -> None:
    """Forget what was inherited: no signal is blocked, none that ends or reaps is ignored."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in _DEFAULT:
        signal.signal(number, signal.SIG_DFL)


def signal_child(pid: int, number: signal.Signals) -> None:
    """Signal a child that we have not reaped yet."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def kill_children(spared: Collection[int], timeout_s: float) -> list[int]:
    """Kill and reap all children of this process but `spared`, and what comes up from below.

    Give what is left after `timeout_s`.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        left = [pid for pid in children(os.getpid()) if pid not in spared]
        if not left:
            return []
        for pid in left:
            signal_child(pid, signal.SIGKILL)
        for pid in left:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        if time.monotonic() > deadline:
            return left
        time.sleep(_POLL_S)
