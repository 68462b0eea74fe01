"""The memory and core budgets, and the bound that sizes a slot."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import chain
from typing import Any

import pytest
from plan_factories import K3, NO_GPU, ONE_GPU, RESIZE, make_checkpoint, make_plan, only, rules

from kimi_serve.launcher.rules.engine_memory import exact_share
from kimi_serve.schemas.hardware import Gpu, Hardware
from kimi_serve.schemas.patch_bound import max_patches, patch_bytes
from kimi_serve.schemas.provenance import Origin
from kimi_serve.schemas.vocabulary import ImageDtype
from kimi_serve.schemas.worker import ResizeConfig

FLAG = "image.force_cpu_preprocessing"
FULL = {
    "engine.kind": "sglang",
    "engine.version": "0.5.23",
    "model.trust_remote_code": True,
    "gpu.total_mib": 81920,
    "gpu.mem_fraction_static": 0.92,
    "tokenizer.worker_num": 16,
}


def test_sixteen_workers_on_a_full_gpu() -> None:
    origin = Origin("profile", "prod.yaml", 4, 25, 27)
    plan = make_plan(FULL, origins={"tokenizer.worker_num": origin})
    (finding,) = plan.findings
    assert (finding.rule, finding.severity, finding.origin) == ("KS301", "warning", origin)
    assert "16 x 800 MiB = 12.5 GiB of contexts" in finding.message
    assert "16 x 837 MiB = 13.1 GiB for images on the first GPU" in finding.message
    assert "against 6.4 GiB outside the static pool, less graphs 1.1 GiB" in finding.message
    assert "at most 1 fits" in finding.message
    assert f"{FLAG}: true" in (finding.help or "")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"tokenizer.worker_num": 1}, []),
        ({"gpu.mem_fraction_static": 0.8, "tokenizer.worker_num": 7}, []),
        ({"gpu.mem_fraction_static": 0.8, "tokenizer.worker_num": 8}, ["KS301"]),
        ({FLAG: True}, []),
        ({"engine.kind": "vllm", "engine.version": "0.33.0"}, ["KS202", "KS202"]),
        ({"tokenizer.worker_num": 2, "gpu.worker_context_mib": 328}, []),
        ({"tokenizer.worker_num": 2, "gpu.worker_context_mib": 329}, ["KS301"]),
        ({"gpu.ids": ()}, []),
        ({"gpu.mem_fraction_static": None}, ["KS301"]),
        ({"gpu.mem_fraction_static": None, "tokenizer.worker_num": 3}, []),
        ({"gpu.total_mib": None, "gpu.ids": ("0",)}, ["KS302", "KS303"]),
    ],
)
def test_what_changes_the_outcome(changes: dict[str, Any], expected: list[str]) -> None:
    assert rules(make_plan(FULL | changes)) == expected


def test_memory_may_come_from_the_driver() -> None:
    gpus = (Gpu(0, "GPU-a", total_mib=143771), Gpu(1, "GPU-b", total_mib=16384))
    hardware = Hardware(8.0, 1024, gpus, "NVML lists 2 GPUs")
    given = FULL | {"gpu.total_mib": None, "tokenizer.worker_num": 4}
    assert rules(make_plan(given, hardware=hardware)) == []
    second = make_plan(given | {"gpu.ids": ("GPU-b",)}, hardware=hardware)
    assert "not even one fits" in only(second, "KS301").message


def test_what_is_missing_is_named() -> None:
    given = {"engine.kind": "sglang", "tokenizer.worker_num": 2}
    finding = only(make_plan(given, hardware=ONE_GPU), "KS302")
    assert finding.message.endswith("without gpu.total_mib")
    assert f"set {FLAG}: true" in (finding.help or "")
    other = only(make_plan(given, hardware=ONE_GPU, checkpoint=make_checkpoint(K3)), "KS302")
    assert other.message.endswith("without gpu.total_mib and gpu.mem_fraction_static")


def test_a_model_that_ignores_the_flag_is_not_told_to_set_it() -> None:
    plan = make_plan(FULL | {FLAG: True}, checkpoint=make_checkpoint(K3))
    assert rules(plan) == ["KS201", "KS301"]
    help = only(plan, "KS301").help or ""
    assert f"set {FLAG}" not in help
    assert "SGLANG_EXTERNAL_MM_PROCESSOR_PACKAGE" in help


def test_the_fraction_is_taken_as_written() -> None:
    assert exact_share("0.9") == Fraction(9, 10)
    assert [exact_share(text) for text in ("1", "0", "1.5", "much", "1/0", "nan")] == [None] * 6


@pytest.mark.parametrize(("cpus", "expected"), [(8.0, []), (4.0, []), (3.9, ["KS305"])])
def test_many_workers_on_few_cores(cpus: float, expected: list[str]) -> None:
    hardware = Hardware(cpus, 1024, (), NO_GPU.gpu_source)
    plan = make_plan({"tokenizer.worker_num": 16}, hardware=hardware)
    assert rules(plan) == expected
    assert rules(make_plan(FULL | {FLAG: True}, hardware=hardware)) == []
    if expected:
        assert "16 workers, one thread each, share 3.9 CPUs" in only(plan, "KS305").message


# The bound on patches


def count_patches(config: ResizeConfig, width: int, height: int) -> int:
    """The checkpoint's own arithmetic: scale, truncate, pad."""
    patch, merge = config.patch_size, config.merge_kernel_size
    limit, side = config.in_patch_limit, config.patch_limit_on_one_side
    area = max(1.0, width // patch) * max(1.0, height // patch)
    scale = min(1.0, math.sqrt(limit / area), side * patch / width, side * patch / height)
    grid = 1
    for length in (width, height):
        new = min(max(1, int(length * scale)), side * patch)
        grid *= -(-new // (patch * merge)) * merge
    return grid


CONFIGS = (
    (16384, 512, 14, 2),
    (65536, 512, 14, 2),
    (4096, 512, 14, 2),
    (1024, 31, 14, 2),
    (256, 512, 14, 2),
    (4, 512, 14, 2),
    (100, 7, 16, 3),
    (1, 1, 14, 1),
    (900, 30, 8, 4),
    (10**6, 20, 14, 2),
)


def make_config(limit: int, side: int, patch: int, merge: int) -> ResizeConfig:
    return ResizeConfig(limit, side, patch, merge, RESIZE.image_mean, RESIZE.image_std)


@pytest.mark.parametrize("numbers", CONFIGS)
def test_no_image_has_more_patches_than_the_bound(numbers: tuple[int, int, int, int]) -> None:
    config = make_config(*numbers)
    bound = max_patches(config)
    sizes = sorted({*range(1, 400, 13), *range(401, 9000, 331), 20_000, 10**5, 917_504, 10**6})
    edges = {patch * config.patch_size - 1 for patch in (1, 2, 3, 5, 16, 33, 35, 127, 129, 513)}
    lengths = sorted({*sizes, *edges} - {0})
    worst = max(count_patches(config, width, height) for width in lengths for height in lengths)
    assert worst <= bound


@pytest.mark.parametrize(
    ("numbers", "width", "height", "patches"),
    [
        ((16384, 512, 14, 2), 489, 7081, 17856),
        ((16384, 512, 14, 2), 3000, 4000, 16800),
        ((4, 512, 14, 2), 14, 917_504, 1024),
    ],
)
def test_known_worst_cases(
    numbers: tuple[int, int, int, int], width: int, height: int, patches: int
) -> None:
    config = make_config(*numbers)
    assert count_patches(config, width, height) == patches
    assert patches <= max_patches(config)


def test_the_bound_wastes_little() -> None:
    assert max_patches(RESIZE) == 18025
    assert max_patches(make_config(10**6, 20, 14, 2)) == 400


def test_every_size_near_the_worst_case() -> None:
    widths = chain(range(470, 510), range(14, 40), range(1780, 1830))
    worst = max(
        count_patches(RESIZE, width, height)
        for width in widths
        for height in chain(range(7060, 7180), range(1780, 1830), (9000, 30000))
    )
    assert 17856 <= worst <= max_patches(RESIZE)


@pytest.mark.parametrize(("dtype", "size"), [("float32", 2352), ("bfloat16", 1176), ("uint8", 588)])
def test_patch_bytes(dtype: ImageDtype, size: int) -> None:
    assert patch_bytes(RESIZE, dtype) == size
