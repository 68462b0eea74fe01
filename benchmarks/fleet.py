"""Memory and start of a fleet of image workers: kimi-serve beside spawned transformers workers.

    python benchmarks/fleet.py [--workers 16] [--peer-python PYTHON]

Starts `kimi-serve` for real, reads the PSS of its whole process tree from /proc, stops it; again
with a vocabulary of the real size, made up and always the same; then spawns as many processes that
each import torch and transformers and build the checkpoint's native image processor, which is how
tokenizer workers usually come to life. Prints all, and the ratios of the first and the last. The
peer needs the gpu extra in PYTHON (this interpreter unless given).
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

DEMO = Path(__file__).parents[1] / "preprocess" / "demo_checkpoint"
# As many as Kimi-K2.5 has.
NUM_RANKS = 163584
READY = re.compile(r"all \d+ workers ready in ([\d.]+) s")
PEER = """
import multiprocessing, sys, time

def work(directory, ready, go_on):
    import torch
    from transformers import AutoImageProcessor
    AutoImageProcessor.from_pretrained(directory)
    ready.put(1)
    go_on.wait()

if __name__ == "__main__":
    directory, count = sys.argv[1], int(sys.argv[2])
    context = multiprocessing.get_context("spawn")
    ready, go_on = context.Queue(), context.Event()
    started = time.monotonic()
    workers = [context.Process(target=work, args=(directory, ready, go_on)) for _ in range(count)]
    for worker in workers:
        worker.start()
    for _ in workers:
        ready.get(timeout=600)
    print("ready", time.monotonic() - started, flush=True)
    sys.stdin.readline()
    go_on.set()
    for worker in workers:
        worker.join()
"""


@dataclass(frozen=True)
class Figures:
    """Seconds from the first worker's start until all are ready; PSS of the tree in MB."""

    ready_s: float
    pss_mb: float
    processes: int


def measure_kimi_serve(workers: int, *words: str) -> Figures:
    command = [
        sys.executable, "-P", "-m", "kimi_serve.launcher", "--port", "0",
        "--tokenizer-worker-num", str(workers), "--force-cpu-image-preprocessing",
        *words,
    ]  # fmt: skip
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        ready = None
        for line in server.stderr:
            ready = READY.search(line)
            if ready:
                break
        if ready is None:
            raise SystemExit("kimi-serve did not start")
        figures = _figures(server.pid, float(ready.group(1)))
        server.send_signal(signal.SIGTERM)
        server.stderr.read()
    return figures


def measure_large_vocabulary(workers: int) -> Figures:
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder) / "checkpoint"
        shutil.copytree(DEMO, checkpoint, ignore=shutil.ignore_patterns("tokenizer.json"))
        (checkpoint / "tiktoken.model").write_bytes(rank_file(NUM_RANKS))
        return measure_kimi_serve(workers, "--model-path", str(checkpoint))


def rank_file(size: int) -> bytes:
    """Make up a vocabulary: every byte, then random tokens as long as real ones."""
    rng = random.Random(0)
    tokens = dict.fromkeys(bytes([byte]) for byte in range(256))
    while len(tokens) < size:
        tokens[rng.randbytes(rng.randint(2, 9))] = None
    lines = (b"%s %d\n" % (base64.b64encode(token), rank) for rank, token in enumerate(tokens))
    return b"".join(lines)


def measure_peer(python: str, workers: int) -> Figures:
    script = Path(os.environ.get("TMPDIR", "/tmp")) / f"fleet_peer_{os.getpid()}.py"
    script.write_text(PEER, encoding="utf-8")
    try:
        with subprocess.Popen(
            [python, str(script), str(DEMO), str(workers)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as peer:
            assert peer.stdin is not None
            assert peer.stdout is not None
            words = peer.stdout.readline().split()
            if not words:
                raise SystemExit(f"the peer did not start; does {python} have the gpu extra?")
            figures = _figures(peer.pid, float(words[1]))
            peer.stdin.write("\n")
            peer.stdin.close()
    finally:
        script.unlink()
    return figures


def _figures(root: int, ready_s: float) -> Figures:
    time.sleep(1)  # let the allocators settle: an idle figure is wanted
    tree = process_tree(root)
    return Figures(ready_s, sum(_pss_kb(pid) for pid in tree) / 1000, len(tree))


def process_tree(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            parent = int(stat.rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry.name))
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found


def _pss_kb(pid: int) -> int:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    match = re.search(r"^Pss:\s+(\d+) kB", text, re.MULTILINE)
    return int(match.group(1)) if match else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--no-peer", action="store_true", help="measure kimi-serve alone")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    ours = measure_kimi_serve(given.workers)
    large = measure_large_vocabulary(given.workers)
    rows = [("kimi-serve", ours), (f"kimi-serve, {NUM_RANKS} ranks", large)]
    if not given.no_peer:
        rows.append(("spawn + transformers", measure_peer(given.peer_python, given.workers)))
    if given.json:
        print(json.dumps({name: vars(figures) for name, figures in rows}))
        return
    print(f"{given.workers} workers, {len(os.sched_getaffinity(0))} cores")
    print(f"{'':26}{'all ready':>12}{'PSS idle':>12}{'processes':>12}")
    for name, figures in rows:
        print(
            f"{name:26}{figures.ready_s:>10.2f} s{figures.pss_mb:>9.0f} MB{figures.processes:>12}"
        )
    if not given.no_peer:
        peer = rows[-1][1]
        print(
            f"{'ratio':26}{peer.ready_s / ours.ready_s:>10.1f} x{peer.pss_mb / ours.pss_mb:>9.1f} x"
        )


if __name__ == "__main__":
    main()
