"""The first moments of a server: signals are obeyed from the start, also as process 1.

Process 1 of a container is sent every orphan to reap, and has no default action for signals. So
the server is not process 1 itself: a small parent stays, which reaps and passes signals on.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Sequence
from types import FrameType

# A server is what runs without a command; a test compares these with the ones that there are.
COMMANDS = frozenset(
    ("adopt", "doctor", "explain", "lint", "plan", "preprocess", "rule", "schema", "verify")
)
_ENDING = (signal.SIGTERM, signal.SIGINT)
# These stop a terminal's job; stopping process 1 would help nobody.
_NOT_PASSED_ON = (signal.SIGTTIN, signal.SIGTTOU, signal.SIGTSTP)
_was_hung_up = False


def begin(argv: Sequence[str], has_command: Callable[[list[str]], bool]) -> None:
    """Prepare this process for a server; other commands end as any program does.

    `plan` may be the value of an option too: `has_command` is asked then, which may take a while.
    What a parent left blocked, or its dead to nobody, is undone for all of them.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # They wait until it is clear who acts on them.
    signal.pthread_sigmask(signal.SIG_SETMASK, (*_ENDING, signal.SIGHUP))
    try:
        is_server = COMMANDS.isdisjoint(argv)
        if not is_server and argv[0] not in COMMANDS:
            is_server = not has_command(list(argv))
        if is_server:
            for number in _ENDING:
                signal.signal(number, _exit)
            signal.signal(signal.SIGHUP, _note_hangup)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
    if is_server and os.getpid() == 1:
        _stay_as_init()


def was_hung_up() -> bool:
    """Say whether SIGHUP came before anybody could act on it."""
    return _was_hung_up


def _exit(_number: int, _frame: FrameType | None) -> None:
    # Nothing is to be finished yet, and what was started ends with this process. An exception
    # could be raised where Python swallows it.
    os._exit(0)


def _note_hangup(_number: int, _frame: FrameType | None) -> None:
    global _was_hung_up
    _was_hung_up = True


def _stay_as_init() -> None:
    """Go on in a child; the parent never returns."""
    every = signal.valid_signals()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, every)
    child = os.fork()
    if child == 0:
        _lead_the_terminal()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return
    while True:
        number = signal.sigwait(every)
        if number == signal.SIGCHLD:
            _reap(child)
        elif number not in _NOT_PASSED_ON:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, number)


def _lead_the_terminal() -> None:
    """Be the one whom Ctrl-C reaches: from the parent too it would count as a second signal."""
    os.setpgid(0, 0)
    with contextlib.suppress(OSError):
        os.tcsetpgrp(0, os.getpid())


def _reap(child: int) -> None:
    """Reap all that ended; with the child itself everything ends."""
    code: int | None = None
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == child:
                code = os.waitstatus_to_exitcode(ended[1])
    if code is not None:
        os._exit(code if code >= 0 else 128 - code)
