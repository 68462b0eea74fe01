"""Real worker pools, for a while: images through them one by one, or as many as they take."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import time
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kimi_serve.preprocess.workers.pool import Pool
from kimi_serve.schemas.image_facts import ImageFacts
from kimi_serve.schemas.messages import WorkerReport
from kimi_serve.schemas.settings import Settings
from kimi_serve.schemas.worker import WorkerSpec

from .gpu_memory import GpuMemory
from .images import Sample
from .parity import Made
from .processes import cpu_seconds, gpu_libraries, pss_mib
from .results import LoadPoint

_SAMPLE_S = 0.1


@dataclass(frozen=True, slots=True)
class Configuration:
    """One way to run the workers: a name for reports and the spec of one of them."""

    name: str
    spec: WorkerSpec

    def specs(self, workers: int) -> tuple[WorkerSpec, ...]:
        return tuple(replace(self.spec, index=index) for index in range(workers))


@dataclass(frozen=True, slots=True)
class WorkerState:
    """One worker after its work: what it said when it was ready, what is mapped now."""

    report: WorkerReport
    libraries: tuple[str, ...]


@contextlib.asynccontextmanager
async def running(
    specs: Sequence[WorkerSpec], settings: Settings, env: Mapping[str, str]
) -> AsyncGenerator[Pool]:
    """Give a pool whose workers are ready; it is closed at the end."""
    pool = Pool(
        specs,
        base_env=env,
        start_timeout_s=settings.server.start_timeout_s,
        job_timeout_s=settings.server.request_timeout_s,
        image_timeout_s=settings.image.timeout_s,
        text_timeout_s=settings.tokenizer.timeout_s,
    )
    pool.launch()
    try:
        await pool.start()
        yield pool
    finally:
        await pool.close()


async def make(pool: Pool, data: bytes) -> tuple[ImageFacts, Made, str | None]:
    """Have one image made; its values are copied out. Gives the fallback too, if there was one."""
    async with pool.image(data, "raw", is_file=True) as lease:
        facts = lease.result.image
        values = np.frombuffer(bytes(lease.pixels), np.float32).reshape(facts.shape)
        made = Made(values, facts.grid_thw, facts.num_tokens)
        return facts, made, lease.result.gpu_fallback


def states(pool: Pool) -> list[WorkerState]:
    """Look at every worker as it is now."""
    return [
        WorkerState(snapshot.report, gpu_libraries(snapshot.report.pid))
        for snapshot in pool.snapshots()
        if snapshot.report is not None
    ]


async def load(
    configuration: Configuration,
    workers: int,
    samples: Sequence[Sample],
    settings: Settings,
    env: Mapping[str, str],
    *,
    seconds: float,
    memory: GpuMemory | None,
) -> tuple[LoadPoint, list[WorkerState], set[int] | None]:
    """Keep `workers` busy for some seconds with two images each in flight.

    Gives what was measured, the workers after it, and the pids that the driver lists.
    """
    before_mib = None if memory is None else memory.used_mib()
    started = time.monotonic()
    async with running(configuration.specs(workers), settings, env) as pool:
        ready_s = time.monotonic() - started
        pids = [state.report.pid for state in states(pool)]
        # Every worker's first images find cold caches and unmapped pages.
        await asyncio.gather(*(_one(pool, samples[-1].data) for _ in range(2 * workers)))
        watching = asyncio.create_task(_watch(memory, pids))
        times, cores, passed = await _drive(pool, samples, workers, pids, seconds)
        watching.cancel()
        # Looked at before anything is given back.
        by_worker, peak_mib = watching_result(memory, pids, await _end(watching))
        found = states(pool)
        listed = None if memory is None else listed_by(memory)
        pss = pss_mib(pids)
    times.sort()
    return (
        LoadPoint(
            configuration=configuration.name,
            workers=workers,
            images=len(times),
            images_per_s=round(len(times) / passed, 2),
            p50_ms=round(_percentile(times, 0.50), 1),
            p95_ms=round(_percentile(times, 0.95), 1),
            cores=round(cores, 2),
            cpu_ms_per_image=round(1000 * cores * passed / max(1, len(times)), 1),
            ready_s=round(ready_s, 2),
            pss_mib=round(pss, 1),
            gpu_workers_mib=by_worker,
            gpu_total_mib=_growth(before_mib, peak_mib),
        ),
        found,
        listed,
    )


async def _one(pool: Pool, data: bytes) -> float:
    started = time.monotonic()
    async with pool.image(data, "raw", is_file=True):
        return 1000 * (time.monotonic() - started)


async def _drive(
    pool: Pool, samples: Sequence[Sample], workers: int, pids: Sequence[int], seconds: float
) -> tuple[list[float], float, float]:
    """Give the time of every image in ms, the cores used, and the seconds that passed."""
    turn = itertools.cycle(samples)
    times: list[float] = []
    started, used = time.monotonic(), cpu_seconds(pids) + time.process_time()
    end = started + seconds

    async def client(images: Iterator[Sample]) -> None:
        # At least one round, however slow the host: every size counts.
        while time.monotonic() < end or len(times) < len(samples):
            times.append(await _one(pool, next(images).data))

    await asyncio.gather(*(client(turn) for _ in range(2 * workers)))
    passed = time.monotonic() - started
    used = cpu_seconds(pids) + time.process_time() - used
    return times, used / passed, passed


def listed_by(memory: GpuMemory) -> set[int] | None:
    """Give the pids that the driver lists on the device, None where it does not answer."""
    found = memory.by_process()
    return None if found is None else set(found)


def _growth(before_mib: float | None, peak_mib: float | None) -> float | None:
    if before_mib is None or peak_mib is None:
        return None
    return round(peak_mib - before_mib, 1)


def _larger(one: float | None, other: float | None) -> float | None:
    known = [mib for mib in (one, other) if mib is not None]
    return max(known, default=None)


_Watched = tuple[tuple[float, ...] | None, float | None]


async def _watch(memory: GpuMemory | None, pids: Sequence[int]) -> _Watched:
    """Note the most that each worker and the device used, until cancelled."""
    most: tuple[float, ...] | None = None
    peak: float | None = None
    try:
        while memory is not None:
            now = memory.of(pids)
            if now is not None:
                most = now if most is None else tuple(map(max, most, now))
            peak = _larger(peak, memory.used_mib())
            await asyncio.sleep(_SAMPLE_S)
    except asyncio.CancelledError:
        pass  # the caller has seen enough, and wants what was seen
    return most, peak


async def _end(watching: asyncio.Task[_Watched]) -> _Watched:
    try:
        return await watching
    except asyncio.CancelledError:  # cancelled before its first step
        return None, None


def watching_result(memory: GpuMemory | None, pids: Sequence[int], watched: _Watched) -> _Watched:
    """Add a last look to what was watched."""
    most, peak = watched
    if memory is None:
        return None, None
    now = memory.of(pids)
    if now is not None:
        most = now if most is None else tuple(map(max, most, now))
    rounded = None if most is None else tuple(round(mib, 1) for mib in most)
    return rounded, _larger(peak, memory.used_mib())


def _percentile(values: Sequence[float], share: float) -> float:
    """Give the smallest value that at least `share` of all do not exceed; 0 of none."""
    return values[max(0, math.ceil(share * len(values)) - 1)] if values else 0.0
