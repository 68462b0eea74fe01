"""The process between launcher and engine, so that nothing of the engine outlives the launcher.

Run as `python -P -m kimi_serve.launcher.supervise.keeper CONTROL STDOUT STDERR`, all three
descriptors. It is the subreaper of everything that the engine starts: orphans, new sessions and
daemons come back to it as children. It ends when no child is left.

The launcher writes JSON lines: first {"argv", "env"}, then {"do": "term" | "term-all" | "kill"}.
The keeper writes {"started": pid} or {"errno", "reason"}, {"exited": wait status, "left": number of
other processes} when the engine's first process ended, and {"empty": true} last. End of file means
that the launcher is dead.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from types import FrameType
from typing import Any

from . import processes

# Between SIGTERM and SIGKILL for what an engine leaves behind, and for all when the launcher died.
LEFTOVER_GRACE_S = 2.0
ORPHANED_GRACE_S = 1.0
_POLL_S = 0.02
# What ends with the engine's first process has done so by then.
_SETTLE_S = 0.1


def main(control_fd: int, stdout_fd: int, stderr_fd: int) -> None:
    """Start what the launcher asks for and keep it until nothing of it is left."""
    processes.reset_signals()
    processes.become_subreaper()
    keeper = _Keeper(socket.socket(fileno=control_fd))
    outputs = (stdout_fd, stderr_fd)
    if keeper.start(outputs):
        keeper.run()


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """Take a signal without effect; SIG_IGN itself would be inherited by the engine."""


def _begin_engine(keeper: int) -> None:
    """Run in the engine's first process, before it is the engine."""
    processes.reset_signals()
    processes.die_with_parent(keeper)


class _Keeper:
    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._received = b""
        self._engine = 0
        self._is_engine_reaped = False
        self._deadline: float | None = None
        self._is_killing = False
        self._is_launcher_gone = False
        self._wakeup, self._wakeup_write = socket.socketpair()
        for end in (self._wakeup, self._wakeup_write):
            end.setblocking(False)
        signal.set_wakeup_fd(self._wakeup_write.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _ignore)
        # Whoever signals the whole control group means the launcher, which then stops the engine.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _ignore)

    def start(self, outputs: tuple[int, int]) -> bool:
        """Take the order and start the engine in a session and process group of its own."""
        order = self._next_line()
        while order is None:
            if self._is_launcher_gone:
                return False
            self._receive()
            order = self._next_line()
        parent = os.getpid()
        try:
            process = subprocess.Popen(
                order["argv"],
                env=order["env"],
                stdin=subprocess.DEVNULL,
                stdout=outputs[0],
                stderr=outputs[1],
                start_new_session=True,
                preexec_fn=lambda: _begin_engine(parent),
            )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            number = getattr(error, "errno", None) or 0
            reason = getattr(error, "strerror", None) or str(error)
            # The kernel says of a folder that it may not be run.
            is_folder = number == errno.EACCES and os.path.isdir(order["argv"][0])
            self._say(errno=errno.EISDIR if is_folder else number, reason=reason)
            return False
        finally:
            for fd in outputs:
                os.close(fd)
        self._engine = process.pid
        process.returncode = 0  # reaped here, not by Popen
        self._say(started=process.pid)
        return True

    def run(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._control, selectors.EVENT_READ, self._obey)
            selector.register(self._wakeup, selectors.EVENT_READ, self._wake)
            while self._reap():
                if self._deadline is not None and time.monotonic() >= self._deadline:
                    self._is_killing = True
                if self._is_killing:
                    self._signal_all(signal.SIGKILL)
                for key, _ in selector.select(self._timeout_s()):
                    key.data()
                if self._is_launcher_gone and self._control.fileno() >= 0:
                    selector.unregister(self._control)
                    self._control.close()
        self._say(empty=True)

    def _timeout_s(self) -> float | None:
        if self._is_killing:
            return _POLL_S
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._wakeup.recv(4096)

    def _reap(self) -> bool:
        """Reap what ended; False when no child is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._engine and not self._is_engine_reaped:
                self._is_engine_reaped = True
                if status == 0:
                    time.sleep(_SETTLE_S)
                self._say(exited=status, left=processes.num_that_stay())
                # Its workers may hold the port and GPU memory for ever (sglang #15165).
                self._end_all(LEFTOVER_GRACE_S)

    def _obey(self) -> None:
        self._receive()
        while (line := self._next_line()) is not None:
            match line.get("do"):
                case "term" if not self._is_engine_reaped:
                    processes.signal_child(self._engine, signal.SIGTERM)
                case "term-all":
                    self._signal_all(signal.SIGTERM)
                case "kill":
                    self._is_killing = True
                case _:
                    pass
        if self._is_launcher_gone:
            self._end_all(ORPHANED_GRACE_S)

    def _end_all(self, grace_s: float) -> None:
        self._signal_all(signal.SIGTERM)
        deadline = time.monotonic() + grace_s
        self._deadline = deadline if self._deadline is None else min(self._deadline, deadline)

    def _signal_all(self, number: signal.Signals) -> None:
        """Signal the engine's group while its number is surely ours, and every other child."""
        if not self._is_engine_reaped:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._engine, number)
        for pid in processes.children(os.getpid()):
            if pid != self._engine or number == signal.SIGKILL:
                processes.signal_child(pid, number)

    def _receive(self) -> None:
        try:
            data = self._control.recv(1 << 16)
        except OSError:
            data = b""
        self._received += data
        self._is_launcher_gone = not data

    def _next_line(self) -> dict[str, Any] | None:
        line, separator, rest = self._received.partition(b"\n")
        if not separator:
            return None
        self._received = rest
        found: dict[str, Any] = json.loads(line)
        return found

    def _say(self, **message: int | str) -> None:
        with contextlib.suppress(OSError):
            self._control.sendall(json.dumps(message).encode() + b"\n")


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:4]))
