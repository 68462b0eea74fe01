"""Pixels from one process to another: the arena's slot, and a pipe with a pickled array.

    python benchmarks/handover.py [--rounds N]

The clock starts when the worker has made 25 MB, in the slot or in an array of its own, and ends
when the other side has read every byte. CPU time of both sides, medians of interleaved rounds;
the reading alone is shown beside them.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import time
from multiprocessing.connection import Connection

import numpy as np
from common import on_one_thread
from numpy.typing import NDArray

from kimi_serve.preprocess.workers.arena import Arena

NBYTES = 10764 * 588 * 4  # 1080p as float32


def produce(pipe: Connection, arena_fd: int) -> None:
    """Be the worker: answer each wish, and say what it cost."""
    arena = Arena(arena_fd, 1, NBYTES, is_writable=True)
    slot = np.frombuffer(arena.slot(0), np.uint64)
    own = np.ones(NBYTES // 8, np.uint64)
    while (wish := pipe.recv()) != "end":
        (slot if wish == "slot" else own).fill(7)
        began = time.process_time()
        pipe.send((0, NBYTES) if wish == "slot" else own)
        pipe.send(time.process_time() - began)


def consume(values: NDArray[np.uint64]) -> float:
    return float(values.sum())


def measure(rounds: int) -> dict[str, float]:
    """Give CPU milliseconds of both sides by way, and of the work itself."""
    arena = Arena.create(1, NBYTES)
    ours, theirs = multiprocessing.Pipe()
    worker = multiprocessing.get_context("fork").Process(
        target=produce, args=(theirs, os.dup(arena.fileno()))
    )
    worker.start()
    slot = np.frombuffer(arena.slot(0), np.uint64)
    taken: dict[str, list[float]] = {"slot": [], "pickle": [], "reading alone": []}
    own = np.ones(NBYTES // 8, np.uint64)
    for number in range(rounds + 2):
        for way in ("slot", "pickle"):
            began = time.process_time()
            ours.send(way)
            answer = ours.recv()
            consume(slot if way == "slot" else answer)
            del answer  # giving its pages back is part of its way
            spent = time.process_time() - began + ours.recv()
            if number > 1:
                taken[way].append(spent)
        began = time.process_time()
        consume(own)
        taken["reading alone"].append(time.process_time() - began)
    ours.send("end")
    worker.join()
    return {way: 1000 * statistics.median(times) for way, times in taken.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    on_one_thread()
    times = measure(given.rounds)
    ratios = {"hand-over 25 MB: pickled pipe / slot": times["pickle"] / times["slot"]}
    if given.json:
        print(json.dumps({"times": times, "ratios": ratios}))
        return
    for way, value in times.items():
        print(f"{way:16} {value:8.2f} ms")
    for name, ratio in ratios.items():
        print(f"{name:16} {ratio:8.1f} x")


if __name__ == "__main__":
    main()
