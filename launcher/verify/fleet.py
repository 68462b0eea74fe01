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

from ..pools import make_pool
from .gpu_memory import GpuMemory, GpuPeak
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


@dataclass(frozen=True, slots=True)
class Loaded:
    """One load: what was measured, the workers after it, and the pids that the driver lists."""

    point: LoadPoint
    workers: Sequence[WorkerState]
    listed: set[int] | None


@dataclass(frozen=True, slots=True)
class _Work:
    """What workers did: the time of every image, the cores that it took, how long it went on."""

    times_ms: Sequence[float]
    cores: float
    seconds: float


@contextlib.asynccontextmanager
async def running(
    specs: Sequence[WorkerSpec], settings: Settings, env: Mapping[str, str]
) -> AsyncGenerator[Pool]:
    """Give a pool whose workers are ready; it is closed at the end."""
    pool = make_pool(specs, settings, env)
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
) -> Loaded:
    """Keep `workers` busy for some seconds with two images each in flight."""
    peak = None if memory is None else GpuPeak(memory)
    started = time.monotonic()
    async with running(configuration.specs(workers), settings, env) as pool:
        ready_s = time.monotonic() - started
        pids = [state.report.pid for state in states(pool)]
        # Every worker's first images find cold caches and unmapped pages.
        await asyncio.gather(*(_one(pool, samples[-1].data) for _ in range(2 * workers)))
        async with _watched(peak, pids):
            work = await _drive(pool, samples, workers, pids, seconds)
        # Looked at before anything is given back.
        after = states(pool)
        listed = None if memory is None else listed_by(memory)
        point = _point(configuration.name, workers, work, ready_s, pss_mib(pids))
    if peak is not None:
        point = replace(point, gpu_workers_mib=peak.by_process, gpu_total_mib=peak.growth_mib)
    return Loaded(point, after, listed)


def _point(name: str, workers: int, work: _Work, ready_s: float, pss: float) -> LoadPoint:
    times, images = sorted(work.times_ms), len(work.times_ms)
    return LoadPoint(
        configuration=name,
        workers=workers,
        images=images,
        images_per_s=round(images / work.seconds, 2),
        p50_ms=round(_percentile(times, 0.50), 1),
        p95_ms=round(_percentile(times, 0.95), 1),
        cores=round(work.cores, 2),
        cpu_ms_per_image=round(1000 * work.cores * work.seconds / max(1, images), 1),
        ready_s=round(ready_s, 2),
        pss_mib=round(pss, 1),
    )


async def _one(pool: Pool, data: bytes) -> float:
    started = time.monotonic()
    async with pool.image(data, "raw", is_file=True):
        return 1000 * (time.monotonic() - started)


async def _drive(
    pool: Pool, samples: Sequence[Sample], workers: int, pids: Sequence[int], seconds: float
) -> _Work:
    """Have as many images made as there is time for, two a worker at once."""
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
    return _Work(times, used / passed, passed)


def listed_by(memory: GpuMemory) -> set[int] | None:
    """Give the pids that the driver lists on the device, None where it does not answer."""
    found = memory.by_process()
    return None if found is None else set(found)


@contextlib.asynccontextmanager
async def _watched(peak: GpuPeak | None, pids: Sequence[int]) -> AsyncGenerator[None]:
    """Look at GPU memory again and again while the block runs, and once more at its end."""
    if peak is None:
        yield
        return
    watching = asyncio.create_task(_watch(peak, pids))
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    peak.look(pids)


async def _watch(peak: GpuPeak, pids: Sequence[int]) -> None:
    while True:
        peak.look(pids)
        await asyncio.sleep(_SAMPLE_S)


def _percentile(values: Sequence[float], share: float) -> float:
    """Give the smallest value that at least `share` of all do not exceed; 0 of none."""
    return values[max(0, math.ceil(share * len(values)) - 1)] if values else 0.0
