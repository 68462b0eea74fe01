"""HTTP end to end: our server, the bare decode of its cores, and plain FastAPI, in turns.

    python benchmarks/http_load.py [--seconds S] [--rounds N] [--workers 16]

All servers run at once and are asked one after the other, round by round. Rates are images per
second of the clock, client included, on all cores; "server CPU" is what all processes of a server
used per image, so the client's share is excluded there. Prints JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import simplejpeg  # type: ignore[import-untyped]
from common import ONE_THREAD, ROOT, on_one_thread, picture
from fleet import READY, process_tree

SAFETENSORS = "application/vnd.safetensors"
TICKS = os.sysconf("SC_CLK_TCK")
CORES = len(os.sched_getaffinity(0))
PATHS = {"PYTHONPATH": os.pathsep.join([str(ROOT / ".typing"), str(ROOT / "benchmarks")])}


@dataclass
class Figures:
    """Of each round: images per second, CPU milliseconds per image of server and client."""

    rate: list[float] = field(default_factory=list[float])
    server_ms: list[float] = field(default_factory=list[float])
    client_ms: list[float] = field(default_factory=list[float])

    def medians(self) -> dict[str, float]:
        return {
            name: round(statistics.median(values), 2)
            for name, values in vars(self).items()
            if values
        }


@contextlib.contextmanager
def our_server(workers: int, *arguments: str) -> Generator[tuple[int, int]]:
    """Start kimi-serve; gives pid and port."""
    command = [
        sys.executable, "-P", "-m", "kimi_serve.launcher", "--port", "0",
        "--tokenizer-worker-num", str(workers), "--force-cpu-image-preprocessing", *arguments,
    ]  # fmt: skip
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        line = next(line for line in server.stderr if READY.search(line))
        yield server.pid, int(line.rpartition(":")[2])
        server.terminate()
        server.stderr.read()


@contextlib.contextmanager
def plain_server(workers: int) -> Generator[tuple[int, int]]:
    """Start the yardstick; gives pid and port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    command = [sys.executable, str(ROOT / "benchmarks" / "plain_fastapi.py"), str(port)]
    with subprocess.Popen(
        [*command, str(workers)], env=os.environ | PATHS | ONE_THREAD, stderr=subprocess.DEVNULL
    ) as server:
        for _ in range(600):
            with contextlib.suppress(urllib.error.URLError):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health").close()
                break
            time.sleep(0.1)
        time.sleep(2)  # the other workers
        yield server.pid, port
        server.terminate()


def cpu_seconds(root: int) -> float:
    """Give what a process and all below it have used."""
    total = 0
    for pid in process_tree(root):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
    return total / TICKS


def ask(server: tuple[int, int], accept: str, file: str, seconds: float, figures: Figures) -> None:
    pid, port = server
    words = ["127.0.0.1", str(port), accept, str(seconds), "8", "1", file]
    before = cpu_seconds(pid)
    command = [sys.executable, str(ROOT / "benchmarks" / "http_client.py"), *words]
    answer = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    count = answer["images"]
    figures.rate.append(count / answer["wall_s"])
    figures.server_ms.append(1000 * (cpu_seconds(pid) - before) / count)
    figures.client_ms.append(1000 * answer["cpu_s"] / count)


def decode(file: str, seconds: float, answers: Any) -> None:
    data = Path(file).read_bytes()
    buffer = np.ones(simplejpeg.decode_jpeg(data, "RGB").size, np.uint8)
    count, began, cpu = 0, time.monotonic(), time.process_time()
    while time.monotonic() - began < seconds:
        simplejpeg.decode_jpeg(data, "RGB", buffer=buffer, strict=True)
        count += 1
    answers.put((count / (time.monotonic() - began), 1000 * (time.process_time() - cpu) / count))


def bare_decode(file: str, seconds: float, figures: Figures) -> None:
    """Decode on every core at once, without anything else."""
    context = multiprocessing.get_context("spawn")
    answers = context.SimpleQueue()
    processes = [
        context.Process(target=decode, args=(file, seconds, answers)) for _ in range(CORES)
    ]
    for process in processes:
        process.start()
    found = [answers.get() for _ in processes]
    for process in processes:
        process.join()
    figures.rate.append(sum(rate for rate, _ in found))
    figures.server_ms.append(statistics.mean(ms for _, ms in found))


def compare(name: str, file: str, given: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Race all ways for one picture."""
    rows: dict[str, Figures] = {}
    with contextlib.ExitStack() as stack:
        servers: dict[str, tuple[tuple[int, int], str]] = {}
        for dtype in ("float32", "bfloat16", "uint8"):
            server = stack.enter_context(our_server(given.workers, "--image-dtype", dtype))
            servers[f"safetensors {dtype}"] = server, SAFETENSORS
            if dtype == "float32":
                servers["JSON float32"] = server, "application/json"
        servers["plain FastAPI"] = stack.enter_context(plain_server(given.workers)), "*/*"
        for number in range(given.rounds + 1):
            seconds = given.seconds if number else 1.0
            found = {way: Figures() for way in ("bare decode", *servers)}
            bare_decode(file, seconds, found["bare decode"])
            for way, (server, accept) in servers.items():
                ask(server, accept, file, seconds, found[way])
            for way, figures in found.items() if number else ():
                row = rows.setdefault(way, Figures())
                for key, values in vars(figures).items():
                    getattr(row, key).extend(values)
    print(f"{name}: done", file=sys.stderr)
    return {way: figures.medians() for way, figures in rows.items()}


def scaling(file: str, given: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Ask fleets of 1 to 16 workers in turns."""
    rows = {count: Figures() for count in (1, 2, 4, 8, 16)}
    with contextlib.ExitStack() as stack:
        servers = {count: stack.enter_context(our_server(count)) for count in rows}
        for _ in range(given.rounds):
            for count, server in servers.items():
                ask(server, SAFETENSORS, file, given.seconds / 2, rows[count])
    return {f"{count} workers": figures.medians() for count, figures in rows.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    on_one_thread()
    os.environ.update(PATHS)
    answer: dict[str, Any] = {}
    pictures = (("1080p JPEG", 1920, 1080), ("12 MP JPEG", 4000, 3000))
    with tempfile.TemporaryDirectory() as folder:
        for name, width, height in pictures[: 1 if given.quick else 2]:
            file = Path(folder) / f"{width}.jpg"
            file.write_bytes(picture(width, height))
            answer[name] = compare(name, str(file), given)
        if not given.quick:
            answer["scaling"] = scaling(str(Path(folder) / "1920.jpg"), given)
    json.dump(answer, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
