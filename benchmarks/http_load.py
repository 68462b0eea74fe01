"""HTTP end to end: our server beside the bare decode of its cores, and others, in turns.

    python benchmarks/http_load.py [--seconds S] [--rounds N] [--workers 16] [--vllm-python P]

All servers run at once and are asked one after the other, round by round. Rates are images per
second of the clock, client included, on all cores; "server CPU" is what all processes of a server
used per image, so the client's share is excluded there. "decode + send" is the floor: a server
that decodes and sends ready bytes, and does nothing else. With a P that has vLLM, `vllm launch
render` is asked as well, on the CPU and without its cache of images. Prints JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import signal
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
from common import KIMI, ONE_THREAD, ROOT, on_one_thread, picture
from fleet import READY, process_tree
from http_client import RENDER
from PIL import Image

from kimi_serve.preprocess.images.kimi import plan_resize

SAFETENSORS = "application/vnd.safetensors"
TICKS = os.sysconf("SC_CLK_TCK")
CORES = len(os.sched_getaffinity(0))
CHECKPOINT = ROOT / "preprocess" / "demo_checkpoint"
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
        try:
            line = next(line for line in server.stderr if READY.search(line))
            yield server.pid, int(line.rpartition(":")[2])
        finally:
            server.terminate()
            server.stderr.read()


@contextlib.contextmanager
def bare_server(file: str, nbytes: int) -> Generator[tuple[int, int]]:
    """Start the floor, whose answers have `nbytes`; gives pid and port."""
    command = [sys.executable, str(ROOT / "benchmarks" / "bare_server.py"), file, str(nbytes)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as server:
        assert server.stdout is not None
        try:
            yield server.pid, int(server.stdout.readline())
        finally:
            os.killpg(server.pid, signal.SIGTERM)


@contextlib.contextmanager
def plain_server(workers: int) -> Generator[tuple[int, int]]:
    """Start the yardstick; gives pid and port."""
    port = free_port()
    command = [sys.executable, str(ROOT / "benchmarks" / "plain_fastapi.py"), str(port)]
    with subprocess.Popen(
        [*command, str(workers)], env=os.environ | PATHS | ONE_THREAD, stderr=subprocess.DEVNULL
    ) as server:
        try:
            wait_healthy(port)
            time.sleep(2)  # the other workers
            yield server.pid, port
        finally:
            server.terminate()


@contextlib.contextmanager
def render_server(python: str) -> Generator[tuple[int, int]]:
    """Start vLLM's tier without a GPU; gives pid and port."""
    port = free_port()
    command = [
        python, "-m", "vllm.entrypoints.cli.main", "launch", "render", str(CHECKPOINT),
        "--host", "127.0.0.1", "--port", str(port), "--mm-processor-cache-gb", "0",
        "--max-model-len", "32768",
    ]  # fmt: skip
    # A wheel for GPUs looks for one unless it is told. torch's threads are left as vLLM sets them.
    without = {name: word for name, word in os.environ.items() if name not in ONE_THREAD}
    env = without | {"VLLM_TARGET_DEVICE": "cpu", "HF_HUB_OFFLINE": "1"}
    # The demo checkpoint says 4096 tokens, and an image of 12 megapixels is more.
    env["VLLM_ALLOW_LONG_MAX_MODEL_LEN"] = "1"
    with subprocess.Popen(
        command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as server:
        try:
            wait_healthy(port)
            yield server.pid, port
        finally:
            server.terminate()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def wait_healthy(port: int) -> None:
    for _ in range(1200):
        with contextlib.suppress(urllib.error.URLError):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health").close()
            return
        time.sleep(0.1)
    raise TimeoutError(f"nothing is healthy on port {port}")


@dataclass(frozen=True)
class Way:
    """One row: whom to ask (pid and port), how, and for what."""

    server: tuple[int, int]
    accept: str
    path: str = "/v1/preprocess"


def cpu_seconds(root: int) -> float:
    """Give what a process and all below it have used."""
    total = 0
    for pid in process_tree(root):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
    return total / TICKS


def ask(way: Way, file: str, seconds: float, figures: Figures) -> None:
    pid, port = way.server
    words = ["127.0.0.1", str(port), way.path, way.accept, str(seconds), "8", "1", file]
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


def start_all(stack: contextlib.ExitStack, file: str, given: argparse.Namespace) -> dict[str, Way]:
    """Start all servers; gives the ways to ask them, by the names of their rows."""
    image = Image.open(file)
    patches = plan_resize(*image.size, KIMI).num_patches * 3 * KIMI.patch_size**2
    ways: dict[str, Way] = {}
    for dtype, size in (("float32", 4), ("bfloat16", 2), ("uint8", 1)):
        floor = stack.enter_context(bare_server(file, patches * size))
        ways[f"decode + send {dtype}"] = Way(floor, "*/*")
        server = stack.enter_context(our_server(given.workers, "--image-dtype", dtype))
        ways[f"safetensors {dtype}"] = Way(server, SAFETENSORS)
        if dtype != "bfloat16":
            ways[f"JSON {dtype}"] = Way(server, "application/json")
    ways["plain FastAPI"] = Way(stack.enter_context(plain_server(given.workers)), "*/*")
    if given.vllm_python:
        server = stack.enter_context(render_server(given.vllm_python))
        ways["vllm launch render, JSON uint8"] = Way(server, "*/*", RENDER)
    return ways


def compare(name: str, file: str, given: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Race all ways for one picture."""
    rows: dict[str, Figures] = {}
    with contextlib.ExitStack() as stack:
        ways = start_all(stack, file, given)
        for number in range(given.rounds + 1):
            seconds = given.seconds if number else 1.0
            found = {way: Figures() for way in ("bare decode", *ways)}
            bare_decode(file, seconds, found["bare decode"])
            for row, way in ways.items():
                ask(way, file, seconds, found[row])
            for row, figures in found.items() if number else ():
                kept = rows.setdefault(row, Figures())
                for key, values in vars(figures).items():
                    getattr(kept, key).extend(values)
    print(f"{name}: done", file=sys.stderr)
    return {row: figures.medians() for row, figures in rows.items()}


def scaling(file: str, given: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Ask fleets of 1 to 16 workers in turns."""
    rows = {count: Figures() for count in (1, 2, 4, 8, 16)}
    with contextlib.ExitStack() as stack:
        servers = {count: stack.enter_context(our_server(count)) for count in rows}
        for _ in range(given.rounds):
            for count, server in servers.items():
                ask(Way(server, SAFETENSORS), file, given.seconds / 2, rows[count])
    return {f"{count} workers": figures.medians() for count, figures in rows.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--vllm-python")
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
