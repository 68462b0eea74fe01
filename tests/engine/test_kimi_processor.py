"""SGLang's own Kimi processor, started with a plan's environment, uses the planned devices.

Needs an interpreter that has SGLang, named in KIMI_SERVE_TEST_SGLANG_PYTHON. On a machine without
a GPU SGLang is made to believe in one, and stopped where it would use it; the program,
scripts/engine_children/kimi_processor.py, says what is stubbed.
"""

from __future__ import annotations

import base64
import os
from functools import cache
from typing import Any

import pytest
from engine_proof.asking import plain_environment, python_variable, run_child
from engine_proof.cases import FORCED, ROOT, WORKERS, Case, base_settings
from engine_proof.commands import Command, command_of

from kimi_serve.preprocess.images.kimi import plan_resize
from kimi_serve.schemas.worker import ResizeConfig

GOLDEN = ROOT / "tests" / "data" / "golden"
JPEG, PNG = "photo444_200x150.jpg", "phone_1440x3120.png"
KIMI = ResizeConfig(16384, 512, 14, 2, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
SIDES = (1, 13, 27, 28, 29, 57, 224, 489, 700, 1080, 1792, 1806, 3120, 4000, 7083, 7169, 20000)
SIZES = [(width, height) for width in SIDES for height in SIDES]
TRAPS = {
    "KIMI_SERVE_IMAGE__FORCE_CPU_PREPROCESSING": "1",  # counts more than the engine's old name
    "SGL_FORCE_CPU_IMAGE_PREPROCESSING": "0",
    "SGLANG_USE_CUDA_IPC_TRANSPORT": "1",
}

pytestmark = pytest.mark.timeout(600)


def command(*, forced: bool, trapped: bool) -> Command:
    settings = base_settings("sglang") | {FORCED: forced, WORKERS: 4}
    return command_of(Case("processor", "sglang", settings, TRAPS if trapped else {}))


@cache
def report(*, forced: bool, trapped: bool = False) -> dict[str, Any]:
    variable = python_variable("sglang")
    python = os.environ.get(variable)
    if not python:
        pytest.skip(f"{variable} names no interpreter that has sglang")
    planned = command(forced=forced, trapped=trapped)
    images = {name: base64.b64encode((GOLDEN / name).read_bytes()).decode() for name in (JPEG, PNG)}
    inherited = plain_environment() | (TRAPS if trapped else {})
    request = {"words": planned.words, "images": images, "sizes": SIZES}
    answer: dict[str, Any] = run_child(
        python, "kimi_processor.py", request, planned.launch.environment(inherited)
    )[0]
    return answer


@pytest.mark.parametrize("trapped", [False, True], ids=["clean", "with old variables inherited"])
def test_forced_images_stay_on_the_cpu(trapped: bool) -> None:
    plan = command(forced=True, trapped=trapped).plan
    assert (plan.decode_device.value, plan.preprocess_device.value) == ("cpu", "cpu")
    found = report(forced=True, trapped=trapped)
    assert found["cuda_available"]  # or there would be nothing to keep from
    assert found["flag"] is True
    assert found["gpu_image_decode"] is False
    stays = ["preprocess of a PIL image by the checkpoint's code"]
    for name in (JPEG, PNG):
        assert found["images"][name]["notes"] == stays
    # As many ids as our own workers give, tests/golden.
    assert found["images"][JPEG]["tokens"] == 48
    assert found["images"][PNG]["tokens"] == 4180


def test_without_the_switch_images_go_to_the_gpu() -> None:
    plan = command(forced=False, trapped=False).plan
    assert (plan.decode_device.value, plan.preprocess_device.value) == ("cuda", "cuda")
    found = report(forced=False)
    assert found["flag"] is False
    assert found["gpu_image_decode"] is True
    # Only JPEG is decoded there, as the plan's reason says; preprocessing is for every format.
    assert found["images"][JPEG]["notes"] == ["decode on cuda", "preprocess on cuda"]
    assert found["images"][PNG]["notes"] == ["preprocess on cuda"]


def test_threads_and_transport_are_those_of_the_plan() -> None:
    """Left alone, SGLang takes one thread beside CUDA, also for images on the CPU."""
    words = command(forced=True, trapped=False).words
    found = report(forced=True)
    for name in ("mm_processor_worker_num", "mm_io_worker_num", "mm_feature_transport"):
        flag = f"--{name.replace('_', '-')}"
        assert str(found[name]) == words[words.index(flag) + 1]
    assert report(forced=False)["mm_processor_worker_num"] == 1


def test_sizes_and_tokens_are_computed_alike() -> None:
    found = report(forced=True)["sizes"]
    for (width, height), theirs in zip(SIZES, found, strict=True):
        ours = plan_resize(width, height, KIMI)
        assert theirs == {
            "num_tokens": ours.num_tokens,
            "new_width": ours.new_width,
            "new_height": ours.new_height,
            "pad_width": ours.padded_width - ours.new_width,
            "pad_height": ours.padded_height - ours.new_height,
        }, (width, height)
