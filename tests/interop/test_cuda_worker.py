"""A CUDA worker as a process, with torch's CPU device in place of the GPU: spawned, and honest."""

from __future__ import annotations

import asyncio
import os
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from image_samples import DATA

from kimi_serve.launcher.pipeline import load, make_plan
from kimi_serve.launcher.verify.images import Images, Sample
from kimi_serve.launcher.verify.run import Task, Verification
from kimi_serve.preprocess.images.image_processor import ImageProcessor
from kimi_serve.preprocess.workers.pool import Pool
from kimi_serve.schemas.errors import WorkerStartError
from kimi_serve.schemas.worker import WorkerSpec

pytest.importorskip("torch", reason="the gpu extra (torch) is not installed")

BIG = (DATA / "golden" / "phone_1440x3120.png").read_bytes()
SMALL = (DATA / "golden" / "photo444_200x150.jpg").read_bytes()

# Runs in spawned workers only: the fork server must stay without torch.
STAND_IN = """
import sys
if "kimi_serve.preprocess.workers.spawned" in sys.orig_argv:
    from kimi_serve.preprocess.cuda import image_processor as module
    from kimi_serve.preprocess.cuda.device import Device
    from kimi_serve.preprocess.cuda.libraries import load_torch
    module.open_device = lambda name, budget: Device(load_torch(), "cpu", budget)
    module.gpu_decoders = lambda torch, device: ()
"""


def cuda_specs(count: int, budget_bytes: int | None = None) -> list[WorkerSpec]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("KIMI_SERVE_")}
    plan = make_plan(load([], {}, [f"tokenizer.worker_num={count}"], env), env)
    return [
        replace(
            spec,
            decode_device="cuda",
            preprocess_device="cuda",
            gpu_budget_bytes=budget_bytes,
            env=tuple(pair for pair in spec.env if pair[0] != "CUDA_VISIBLE_DEVICES"),
        )
        for spec in plan.worker_specs()
    ]


def pool_of(specs: Sequence[WorkerSpec], path: Path | None) -> Pool:
    env = dict(os.environ)
    if path is not None:
        (path / "sitecustomize.py").write_text(textwrap.dedent(STAND_IN), encoding="utf-8")
        env["PYTHONPATH"] = str(path)
    return Pool(
        specs,
        base_env=env,
        start_timeout_s=100,
        job_timeout_s=60,
        image_timeout_s=60,
        text_timeout_s=60,
    )


def test_a_cuda_worker_is_spawned_and_makes_the_same_pixels(tmp_path: Path) -> None:
    specs = cuda_specs(2, budget_bytes=60 * 2**20)
    pool = pool_of(specs, tmp_path)

    async def run() -> None:
        pool.launch()
        try:
            await pool.start()
            for snapshot in pool.snapshots():
                report = snapshot.report
                assert report is not None
                assert report.torch_imported
                assert (report.decode_device, report.preprocess_device) == ("cuda", "cuda")
                assert "torch" in report.versions
                assert "spawned" in Path(f"/proc/{report.pid}/cmdline").read_text()
            for data in (SMALL, BIG):
                facts, wanted = ImageProcessor(specs[0].resize, specs[0].rules).process_array(data)
                async with pool.image(data, "raw", is_file=True) as lease:
                    assert lease.result.image.grid_thw == facts.grid_thw
                    found = np.frombuffer(lease.pixels, np.uint8)
                    assert np.array_equal(found, wanted.view(np.uint8).ravel())
                    del found
            # 13 MB of pixels and a strip fit no 60 MiB.
            assert dict(pool.counts.gpu_fallbacks) == {"over-budget": 1}
        finally:
            await pool.close()

    asyncio.run(run())


def test_without_a_gpu_a_cuda_worker_says_so_and_does_not_start() -> None:
    pool = pool_of(cuda_specs(1), None)

    async def run() -> None:
        pool.launch()
        try:
            with pytest.raises(WorkerStartError, match="torch sees none") as raised:
                await pool.start()
            assert "image.force_cpu_preprocessing" in (raised.value.hint or "")
        finally:
            await pool.close()

    asyncio.run(run())


def test_verify_runs_both_configurations_and_compares_them(tmp_path: Path) -> None:
    env = {name: text for name, text in os.environ.items() if not name.startswith("KIMI_SERVE_")}
    forced = make_plan(load([], {"image__force_cpu_preprocessing": True}, [], env), env)
    free = replace(forced, workers=tuple(cuda_specs(1)))
    (tmp_path / "sitecustomize.py").write_text(textwrap.dedent(STAND_IN), encoding="utf-8")
    samples = [Sample("small.jpg", SMALL), Sample("big.png", BIG)]
    images = Images(samples, samples[:1])
    task = Task(forced, free, images, [1], 0.2, env | {"PYTHONPATH": str(tmp_path)})
    steps: list[str] = []
    report = Verification(task, steps.append).run()
    assert len(steps) == task.num_steps
    assert report.holds
    (gpu,) = (found for found in report.comparisons if found.title.startswith("GPU beside"))
    assert [image.share for image in gpu.images] == [0, 0]
    assert [point.configuration for point in report.loads] == ["forced CPU", "GPU"]
    assert report.loads[1].gpu_predicted_mib == 800 + 339
    assert report.loads[1].gpu_total_mib is None
    assert any("there is no GPU" in missed.why for missed in report.not_measured)
    assert not any("GPU, 1 workers" in promise.text for promise in report.promises)
