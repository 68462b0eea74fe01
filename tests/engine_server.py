"""kimi-serve with the stand-in engine, and what is left of it; fixtures are in the tests."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from integration_server import RunningServer, launch, wait_until

TESTS = Path(__file__).parent
STAND_IN = TESTS / "stand_in_engine" / "stand_in.py"
CHECKPOINT = TESTS.parent / "preprocess" / "demo_checkpoint"


def free_port() -> int:
    """Ask the kernel for a port; nobody holds it when this returns."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def can_bind(port: int) -> bool:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def is_running(pid: int) -> bool:
    """A zombie that nobody waits for does not run."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
        return [int(word) for word in text.split()]
    return []


@dataclass
class EngineServer:
    """One launcher and its stand-in, with files that steer it in `folder`."""

    folder: Path
    port: int = field(default_factory=free_port)
    running: RunningServer | None = None

    def start(
        self,
        stand_in: Mapping[str, object] | None = None,
        settings: Mapping[str, Mapping[str, Any]] | None = None,
        *arguments: str,
        env: dict[str, str] | None = None,
    ) -> EngineServer:
        """Start with variables of the stand-in (without STAND_IN_) and settings by section."""
        variables = {f"STAND_IN_{name}": str(value) for name, value in (stand_in or {}).items()}
        variables["STAND_IN_PIDS"] = str(self.folder / "pids")
        variables["STAND_IN_RECORD"] = str(self.folder / "record.json")
        variables.setdefault("STAND_IN_RELEASE", str(self.folder / "release"))
        profile: dict[str, dict[str, Any]] = {
            "model": {"path": str(CHECKPOINT), "trust_remote_code": True},
            "server": {"port": self.port},
            "engine": {
                "kind": "sglang", "python": str(STAND_IN), "kill_timeout_s": 20,
                "startup_timeout_s": 60, "env": variables,
            },
        }  # fmt: skip
        for section, values in (settings or {}).items():
            profile.setdefault(section, {}).update(values)
        path = self.folder / "stand-in.kimi-serve.yaml"
        path.write_text(json.dumps(profile), encoding="utf-8")  # which is YAML too
        words = ("--port", str(self.port), "--profile", str(path), *arguments)
        self.running = launch(*words, env=env)
        return self

    @property
    def server(self) -> RunningServer:
        assert self.running is not None
        return self.running

    @property
    def log(self) -> str:
        return "".join(self.server.log)

    def wait_for(self, text: str) -> None:
        wait_until(lambda: text in self.log or self.server.process.poll() is not None)
        # The reader may be behind the end of the process.
        wait_until(lambda: text in self.log)

    def wait_until_ready(self) -> EngineServer:
        self.server.wait_until_serving()
        return self

    def wait_for_end(self) -> int:
        """Wait for an end that is not asked for; gives the exit code."""
        code = self.server.process.wait(60)
        return self.server.stop() and code

    def get(self, path: str, **options: Any) -> httpx.Response:
        return httpx.get(f"http://127.0.0.1:{self.port}{path}", timeout=60, **options)

    def status(self, path: str, key: str = "") -> httpx.Response:
        (line,) = (line for line in self.server.log if "status on http" in line)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return httpx.get(f"{line.split()[-1]}{path}", headers=headers, timeout=60)

    def engine_pids(self) -> list[int]:
        path = self.folder / "pids"
        return [int(word) for word in path.read_text().split()] if path.exists() else []

    def record(self) -> dict[str, Any]:
        path = self.folder / "record.json"
        wait_until(path.exists)
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found

    def keeper(self) -> int:
        wait_until(lambda: bool(children(self.server.process.pid)))
        return children(self.server.process.pid)[0]

    def release(self) -> None:
        (self.folder / "release").touch()

    def wait_until_nothing_is_left(self) -> None:
        pids = self.engine_pids()
        wait_until(lambda: not any(map(is_running, pids)))
        wait_until(lambda: can_bind(self.port))

    def close(self) -> None:
        """End whatever a failed test left."""
        if self.running is not None:
            if self.running.process.poll() is None:
                self.running.process.kill()
            self.running.stop()
        for pid in self.engine_pids():
            if is_running(pid) and b"stand_in" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
