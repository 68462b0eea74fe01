"""The server as its processes: start, find, signal, weigh."""

from __future__ import annotations

import asyncio
import collections
import os
import random
import re
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

_SERVING = re.compile(rb"serving on http://([\d.]+):(\d+)")
_LINES_KEPT = 200


class Server:
    """A running kimi-serve; its log is read all the time, and its last lines are kept."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.address = ("", 0)
        self.log: collections.deque[str] = collections.deque(maxlen=_LINES_KEPT)
        self.counts: collections.Counter[str] = collections.Counter()

    async def follow(self, serving: asyncio.Event) -> None:
        """Read the log to its end."""
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            self.log.append(line.decode(errors="replace").rstrip())
            for name in ("ended:", "generation", "killing it", "reload refused"):
                self.counts[name] += name.encode() in line
            match = _SERVING.search(line)
            if match:
                self.address = (match[1].decode(), int(match[2]))
                serving.set()
        serving.set()

    def fork_servers(self) -> list[int]:
        return children(self.process.pid)

    def workers(self) -> list[int]:
        return [worker for parent in self.fork_servers() for worker in children(parent)]


@asynccontextmanager
async def running_server(*arguments: str) -> AsyncGenerator[Server]:
    """Start a server on a free port; at the end it must stop in order."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "kimi_serve.launcher", "--port", "0", *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        limit=1 << 20,
    )
    server = Server(process)
    serving = asyncio.Event()
    following = asyncio.create_task(server.follow(serving))
    try:
        await serving.wait()
        if not server.address[1]:
            raise RuntimeError("the server did not start:\n" + "\n".join(server.log))
        yield server
        with suppress(ProcessLookupError):
            process.terminate()
        code = await process.wait()
        if code != 0:
            raise RuntimeError(f"exit code {code}:\n" + "\n".join(server.log))
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        await following


def children(pid: int) -> list[int]:
    """Give the processes whose parent is `pid`."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    except OSError:
        return []
    return [int(word) for word in text.split()]


class Killer:
    """Sends a random signal to a random process at random moments."""

    WORKER_SIGNALS: Sequence[signal.Signals] = (
        signal.SIGKILL,
        signal.SIGSEGV,
        signal.SIGSTOP,
        signal.SIGTERM,
    )
    # Now and then the parent of all workers, or a reload of the whole.
    FORK_SERVER_SHARE = 0.03
    RELOAD_SHARE = 0.03

    def __init__(self, server: Server, mean_pause_s: float, seed: int) -> None:
        self._server = server
        self._mean_pause_s = mean_pause_s
        self._random = random.Random(seed)
        self.sent: collections.Counter[str] = collections.Counter()

    async def run(self, is_over: Callable[[], bool]) -> None:
        """Kill until it is over."""
        while not is_over():
            await asyncio.sleep(self._random.expovariate(1 / self._mean_pause_s))
            self._strike()

    def _strike(self) -> None:
        lot = self._random.random()
        if lot < self.RELOAD_SHARE:
            self._signal("server", [self._server.process.pid], signal.SIGHUP)
        elif lot < self.RELOAD_SHARE + self.FORK_SERVER_SHARE:
            number = self._random.choice((signal.SIGKILL, signal.SIGSTOP))
            self._signal("fork server", self._server.fork_servers(), number)
        elif workers := self._server.workers():
            self._signal("worker", workers, self._random.choice(self.WORKER_SIGNALS))
        else:
            # Still starting: it is all there is, so whoever kills at random kills it.
            self._signal("starting fork server", self._server.fork_servers(), signal.SIGKILL)

    def _signal(self, whom: str, pids: Sequence[int], number: signal.Signals) -> None:
        if pids:
            with suppress(ProcessLookupError):
                os.kill(self._random.choice(pids), number)
                self.sent[f"{number.name} to a {whom}"] += 1


def memory_kib(pids: Sequence[int]) -> tuple[int, int]:
    """Give RSS and PSS of processes, in KiB."""
    rss = pss = 0
    for pid in pids:
        with suppress(OSError):
            text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
            rss += int(re.search(r"^Rss:\s+(\d+)", text, re.MULTILINE)[1])  # type: ignore[index]
            pss += int(re.search(r"^Pss:\s+(\d+)", text, re.MULTILINE)[1])  # type: ignore[index]
    return rss, pss
