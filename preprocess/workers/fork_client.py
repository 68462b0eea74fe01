"""The launcher's end of the fork server: starts it, asks it for workers, hears of their ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Protocol

from kimi_serve.schemas.worker import WorkerSpec

from .forkserver import MAX_PACKET_BYTES, send_spawn

# What a worker may inherit: enough to find its libraries, nothing that configures it.
_INHERITED = (
    "PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR",
    "PYTHONPATH", "LD_LIBRARY_PATH", "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE",
)  # fmt: skip


class ForkListener(Protocol):
    """Who wants to know; called from the event loop."""

    def on_spawned(self, index: int, pid: int) -> None: ...
    def on_exited(self, pid: int, status: int) -> None: ...
    def on_fork_server_lost(self) -> None: ...


class ForkClient:
    """One fork server process at a time; `start` again after it was lost."""

    def __init__(self, env: Mapping[str, str], base_env: Mapping[str, str]) -> None:
        self._env = {name: base_env[name] for name in _INHERITED if name in base_env} | dict(env)
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._spawning = asyncio.Lock()

    def start(self) -> None:
        """Start the process; it imports while the caller goes on."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "kimi_serve.preprocess.workers.forkserver",
                    str(theirs.fileno()),
                ],
                env=self._env,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                # Ctrl-C in a terminal is for the launcher, which then stops the workers in order.
                start_new_session=True,
            )
        ours.setblocking(False)
        self._control = ours

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def attach(self, loop: asyncio.AbstractEventLoop, listener: ForkListener) -> None:
        """Pass everything that the fork server says to `listener`."""
        assert self._control is not None
        loop.add_reader(self._control.fileno(), self._read, loop, listener)

    async def spawn(self, spec: WorkerSpec, fds: Sequence[int]) -> None:
        """Ask for a worker; a fork server that is gone is told to the listener instead."""
        async with self._spawning:
            while self._control is not None:
                try:
                    send_spawn(self._control, spec, fds)
                except BlockingIOError:
                    await _writable(self._control)
                except OSError:
                    return
                else:
                    return

    def close(self, loop: asyncio.AbstractEventLoop) -> None:
        """End the fork server and with it every worker that is left."""
        if self._control is not None:
            with contextlib.suppress(ValueError, OSError):
                loop.remove_reader(self._control.fileno())
            self._control.close()
            self._control = None
        if self._process is not None:
            try:
                self._process.wait(timeout=2)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def _read(self, loop: asyncio.AbstractEventLoop, listener: ForkListener) -> None:
        while self._control is not None:
            try:
                packet = self._control.recv(MAX_PACKET_BYTES)
            except BlockingIOError:
                return
            except OSError:
                packet = b""
            if not packet:
                loop.remove_reader(self._control.fileno())
                listener.on_fork_server_lost()
                return
            said = json.loads(packet)
            if "status" in said:
                listener.on_exited(said["pid"], said["status"])
            else:
                listener.on_spawned(said["index"], said["pid"])


async def _writable(control: socket.socket) -> None:
    """Wait until the socket takes another packet."""
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_writer(control.fileno(), _settle, ready)
    try:
        await ready
    finally:
        loop.remove_writer(control.fileno())


def _settle(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


def kill(pid: int) -> None:
    """Kill a worker that does not answer."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
