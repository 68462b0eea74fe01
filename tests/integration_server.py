"""A real kimi-serve process on a port from the kernel; fixtures are in integration/conftest.py."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import httpx

DATA = Path(__file__).parent / "data"
SERVING = re.compile(r"serving on (http://\S+)")


@dataclass
class RunningServer:
    """One server process; its log is collected in a thread of its own."""

    process: subprocess.Popen[str]
    log: list[str] = field(default_factory=list[str])
    url: str = ""
    _reader: threading.Thread | None = None
    _is_serving: threading.Event = field(default_factory=threading.Event)

    def follow(self) -> None:
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(line)
            match = SERVING.search(line)
            if match:
                self.url = match.group(1)
                self._is_serving.set()
        self._is_serving.set()

    def wait_until_serving(self) -> RunningServer:
        assert self._is_serving.wait(60), "".join(self.log)
        assert self.url, "".join(self.log)
        return self

    def client(self, **options: object) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=60, **options)  # type: ignore[arg-type]

    def metric(self, name: str) -> float:
        """Give the value of a metric, summed over what labels `name` leaves open."""
        with self.client() as client:
            lines = [line.rpartition(" ") for line in client.get("/metrics").text.splitlines()]
        values = [float(value) for key, _, value in lines if name in (key, key.partition("{")[0])]
        # What has labels comes with its first event.
        assert values or "{" in name, f"there is no {name}"
        return sum(values)

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(60)
        assert self._reader is not None
        self._reader.join(10)
        assert self.process.stderr is not None
        self.process.stderr.close()
        return code

    def stop_with_nothing_held(self) -> int:
        """Stop a server that many tests have asked, once nothing of theirs is counted any more."""
        for name in ("held_bytes", "waiting_requests", "queued_jobs"):
            wait_until(lambda name=name: self.metric(f"kimi_serve_{name}") == 0)
        return self.stop()

    def workers(self) -> list[dict[str, object]]:
        with self.client() as client:
            found: list[dict[str, object]] = client.get("/server_info").json()["workers"]
            return found


Start = Callable[..., RunningServer]


def without_settings() -> dict[str, str]:
    """Give this process's environment without what would configure a server."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("KIMI_SERVE_", "SGLANG_", "SGL_"))
    }


def launch(*arguments: str, env: dict[str, str] | None = None) -> RunningServer:
    """Start `kimi-serve` with `arguments` on a free port, without waiting."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "kimi_serve.launcher", "--port", "0", *arguments],
        env=without_settings() | (env or {}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    server = RunningServer(process)
    server.follow()
    return server


def wait_until(condition: Callable[[], bool], within_s: float = 30) -> None:
    """Poll an outside fact (processes of others cannot be waited for)."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.02)
