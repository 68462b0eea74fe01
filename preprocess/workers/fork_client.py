"""The launcher's end of the fork server: starts it, asks it for workers, hears of their ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import IO, Protocol

from kimi_serve.schemas.worker import WorkerSpec

from .forkserver import MAX_PACKET_BYTES, send_spawn
from .log_pipe import LogPipe

logger = logging.getLogger(__name__)

# Between the end of its socket and that of the process itself.
_END_S = 1.0
_LOOK_S = 0.01

# What a worker may inherit: enough to find its libraries, nothing that configures it.
_INHERITED = (
    "PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR",
    "PYTHONPATH", "LD_LIBRARY_PATH", "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE",
)  # fmt: skip


class ForkListener(Protocol):
    """Who wants to know; called from the event loop."""

    def on_spawned(self, index: int, pid: int) -> None: ...
    def on_not_spawned(self, index: int, reason: str) -> None: ...
    def on_exited(self, pid: int, status: int) -> None: ...
    def on_fork_server_lost(self) -> None: ...


class ForkClient:
    """One fork server process at a time; `start` again after it was lost."""

    def __init__(self, env: Mapping[str, str], base_env: Mapping[str, str]) -> None:
        self._env = {name: base_env[name] for name in _INHERITED if name in base_env} | dict(env)
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._log = LogPipe()
        self._log_fd = -1
        self._spawning = asyncio.Lock()
        self._writable: asyncio.Future[None] | None = None

    def start(self) -> None:
        """Start the process; it imports while the caller goes on.

        After an OSError `close` lets go of what there is.
        """
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.setblocking(False)
        with theirs:
            self._log_fd, log_write = os.pipe()
            with open(log_write, "wb") as log:
                self._process = self._launch(theirs, log)

    def _launch(self, theirs: socket.socket, log: IO[bytes]) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-P", "-m", "kimi_serve.preprocess.workers.forkserver"]
        return subprocess.Popen(
            [*command, str(theirs.fileno()), str(os.getpid())],
            env=self._env,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stderr=log,
            # Ctrl-C in a terminal is for the launcher, which then stops the workers in order.
            start_new_session=True,
        )

    @property
    def pid(self) -> int | None:
        """The process, None while there is none."""
        return None if self._process is None else self._process.pid

    def attach(self, listener: ForkListener) -> None:
        """Pass everything that the fork server says to `listener`."""
        assert self._control is not None
        loop = asyncio.get_running_loop()
        loop.add_reader(self._control.fileno(), self._read, self._control, listener)
        self._log = LogPipe()
        log_fd, self._log_fd = self._log_fd, -1
        self._log.follow(log_fd)

    async def end(self) -> tuple[int, list[str]]:
        """Wait for the end of a fork server that closed its socket; its status and last lines."""
        process = self._process
        if process is not None:
            await _has_ended(process)
        await self.close()
        code = 0 if process is None else process.returncode
        if code is None:  # killed, but the kernel does not let go of it yet
            code = -signal.SIGKILL
        # As `wait` gives it.
        return -code if code < 0 else code << 8, list(self._log.tail)

    async def spawn(self, spec: WorkerSpec, fds: Sequence[int]) -> None:
        """Ask for a worker; that the fork server is gone is told to the listener instead.

        Raises OSError when it is there and cannot be asked.
        """
        # What is asked of one fork server is not asked of the next: its worker was given up.
        control = self._control
        async with self._spawning:
            while control is not None and control is self._control:
                try:
                    send_spawn(control, spec, fds)
                except BlockingIOError:
                    await self._wait_until_writable(control)
                except ConnectionError:
                    return
                else:
                    return

    async def close(self) -> None:
        """End the fork server and with it every worker that is left; twice is once."""
        self._hang_up()
        process = self._process
        if process is not None:
            process.kill()
            # Not `wait`, which would keep the requests of other workers waiting as well.
            if not await _has_ended(process):
                logger.error("the fork server (pid %d) was killed and does not end", process.pid)
            self._process = None
        self._log.close()
        if self._log_fd >= 0:
            os.close(self._log_fd)
            self._log_fd = -1

    def _hang_up(self) -> None:
        if self._control is not None:
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._control.fileno())
            loop.remove_writer(self._control.fileno())
            self._control.close()
            self._control = None
        self._on_writable()

    def kill(self) -> None:
        """End a fork server that does not answer; the listener hears of it as of any end."""
        if self._process is not None:
            self._process.kill()

    async def _wait_until_writable(self, control: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        self._writable = loop.create_future()
        loop.add_writer(control.fileno(), self._on_writable)
        try:
            await self._writable
        finally:
            self._writable = None
            if control is self._control:
                loop.remove_writer(control.fileno())

    def _on_writable(self) -> None:
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)

    def _read(self, control: socket.socket, listener: ForkListener) -> None:
        while control is self._control:
            try:
                packet = control.recv(MAX_PACKET_BYTES)
            except BlockingIOError:
                return
            except OSError:
                packet = b""
            if not packet:
                asyncio.get_running_loop().remove_reader(control.fileno())
                listener.on_fork_server_lost()
                return
            _tell(json.loads(packet), listener)


async def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Wait a little for the end of a process; says whether it came."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_END_S):
            while process.poll() is None:
                await asyncio.sleep(_LOOK_S)
    return process.poll() is not None


def _tell(said: dict[str, int | str], listener: ForkListener) -> None:
    match said:
        case {"pid": int(pid), "status": int(status)}:
            listener.on_exited(pid, status)
        case {"index": int(index), "pid": int(pid)}:
            listener.on_spawned(index, pid)
        case {"index": int(index), "error": str(reason)}:
            listener.on_not_spawned(index, reason)
        case _:
            pass
