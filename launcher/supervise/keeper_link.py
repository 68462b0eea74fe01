"""The launcher's end of the keeper: starts it, asks it, hears how the engine ended."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from kimi_serve.schemas.errors import EngineError

from . import processes
from .endings import Ending, Exited, KeeperLost, NotStarted

# What the keeper may inherit: enough to find Python and this package.
_INHERITED = (
    "PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "PYTHONPATH", "PYTHONHOME",
    "LD_LIBRARY_PATH", "VIRTUAL_ENV",
)  # fmt: skip
_KILL_TIMEOUT_S = 10.0


class KeeperLink:
    """One keeper with one engine; made and used inside a running event loop."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.started: asyncio.Future[int] = loop.create_future()
        self.ended: asyncio.Future[Ending] = loop.create_future()
        self.gone: asyncio.Future[None] = loop.create_future()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._received = b""
        self._is_empty = False
        self._strangers: tuple[int, ...] = ()

    @property
    def pid(self) -> int:
        """The keeper's own."""
        assert self._process is not None
        return self._process.pid

    def start(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        base_env: Mapping[str, str],
        outputs: tuple[int, int],
    ) -> None:
        """Start the keeper with its order; `outputs` become the engine's stdout and stderr."""
        self._strangers = tuple(processes.children(os.getpid()))
        processes.become_subreaper()
        ours, theirs = socket.socketpair()
        with theirs:
            passed = (theirs.fileno(), *outputs)
            command = [sys.executable, "-P", "-m", "kimi_serve.launcher.supervise.keeper"]
            try:
                self._process = subprocess.Popen(
                    [*command, *map(str, passed)],
                    env={name: base_env[name] for name in _INHERITED if name in base_env},
                    pass_fds=passed,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    # Ctrl-C in a terminal is for the launcher, which then stops the engine.
                    start_new_session=True,
                )
            except OSError as error:
                ours.close()
                raise EngineError(f"no process can be started: {error.strerror}") from None
        ours.setblocking(False)
        self._control = ours
        loop = asyncio.get_running_loop()
        loop.add_reader(ours.fileno(), self._read, ours)
        order = {"argv": list(argv), "env": dict(env)}
        # The order may be larger than the socket takes at once: the keeper starts in the meantime.
        self._sending = loop.create_task(self._send_order(ours, order))

    async def _send_order(self, control: socket.socket, order: Mapping[str, Any]) -> None:
        with contextlib.suppress(OSError):  # a keeper that died is told by the reader
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(control, json.dumps(order).encode() + b"\n")

    def term(self) -> None:
        """SIGTERM to the engine's first process."""
        self._ask("term")

    def term_all(self) -> None:
        """SIGTERM to the whole group and to what it left behind."""
        self._ask("term-all")

    def kill(self) -> None:
        """SIGKILL to all of it, until nothing is left."""
        self._ask("kill")

    def descendants(self) -> list[int]:
        """List the engine's processes as they are now."""
        return processes.descendants(self.pid)

    async def close(self) -> None:
        """End what is left, whatever state it is in."""
        if self._process is None:
            return
        self.kill()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_KILL_TIMEOUT_S):
                await asyncio.shield(self.gone)
        if not self.gone.done():
            # It is not heard any more, and everybody waits for how it ended.
            self._forget_control()
            _settle(self.ended, KeeperLost())
        self._sending.cancel()

    def _ask(self, what: str) -> None:
        if self._control is None:
            return
        if not self._sending.done():
            self._sending.add_done_callback(lambda _: self._ask(what))
            return
        with contextlib.suppress(OSError):
            self._control.send(json.dumps({"do": what}).encode() + b"\n")

    def _read(self, control: socket.socket) -> None:
        try:
            data = control.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._on_end()
            return
        *lines, self._received = (self._received + data).split(b"\n")
        for line in lines:
            self._hear(json.loads(line))

    def _hear(self, said: dict[str, Any]) -> None:
        match said:
            case {"started": int(pid)}:
                _settle(self.started, pid)
            case {"errno": int(errno), "reason": str(reason)}:
                self._is_empty = True
                _settle(self.ended, NotStarted(errno, reason))
            case {"exited": int(status), "left": int(num_left)}:
                _settle(self.ended, Exited(status, num_left))
            case {"empty": True}:
                self._is_empty = True
            case _:
                pass

    def _on_end(self) -> None:
        self._forget_control()
        assert self._process is not None
        if not self._is_empty:
            # Its children become ours when it is dead, which is after its files are closed.
            # Killing them costs milliseconds, and nothing else matters now.
            self._process.kill()
            self._process.wait()
            processes.kill_children(self._strangers, _KILL_TIMEOUT_S)
        self._process.wait()
        _settle(self.ended, KeeperLost())
        _settle(self.gone, None)

    def _forget_control(self) -> None:
        if self._control is not None:
            asyncio.get_running_loop().remove_reader(self._control.fileno())
            self._control.close()
            self._control = None


def _settle(future: asyncio.Future[Any], value: object) -> None:
    if not future.done():
        future.set_result(value)
