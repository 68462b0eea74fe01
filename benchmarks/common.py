"""What the benchmarks share: pictures, the race on one thread, the checkpoint's order of steps."""

from __future__ import annotations

import os
import random
import statistics
import sys
import time
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from kimi_serve.preprocess.images.kimi import plan_resize
from kimi_serve.schemas.worker import ImageRules, ResizeConfig

ROOT = Path(__file__).parents[1]
HALF = (0.5, 0.5, 0.5)
KIMI = ResizeConfig(16384, 512, 14, 2, HALF, HALF)
RULES = ImageRules("checkpoint", (255, 255, 255), "float32", 10**9, 2**30, ("jpeg", "png", "webp"))
BICUBIC = Image.Resampling.BICUBIC
# A peer that allocates 40 MB a picture pays for fresh pages unless glibc is told to keep them.
TUNED_MALLOC = {
    "MALLOC_MMAP_THRESHOLD_": str(2**30),
    "MALLOC_TRIM_THRESHOLD_": str(2**32),
    "MALLOC_TOP_PAD_": str(2**27),
}
ONE_THREAD: dict[str, str] = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"
)
# Name, width, height, format, options.
PICTURES: tuple[tuple[str, int, int, str, dict[str, Any]], ...] = (
    ("224 JPEG", 224, 224, "JPEG", {}),
    ("640x480 JPEG", 640, 480, "JPEG", {}),
    ("720p JPEG", 1280, 720, "JPEG", {}),
    ("1080p JPEG", 1920, 1080, "JPEG", {}),
    ("1080p progressive", 1920, 1080, "JPEG", {"progressive": True}),
    ("1080p PNG", 1920, 1080, "PNG", {"compress_level": 3}),
    ("1080p WebP", 1920, 1080, "WEBP", {"quality": 85, "method": 2}),
    ("12 MP JPEG", 4000, 3000, "JPEG", {}),
    ("48 MP JPEG", 8000, 6000, "JPEG", {}),
)

Call = Callable[[], object]


def race(calls: dict[str, Call], rounds: int) -> dict[str, float]:
    """Give the median CPU milliseconds of each; interleaved, each round in another order.

    Whoever always came after the same one would always find the caches as that one leaves them.
    """
    orders = random.Random(0)
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(rounds + 1):
        for name in orders.sample(list(calls), len(calls)):
            began = time.process_time()
            calls[name]()
            if number:  # the first round only warms up
                taken[name].append(time.process_time() - began)
    return {name: 1000 * statistics.median(times) for name, times in taken.items()}


def photo(width: int, height: int) -> NDArray[np.uint8]:
    """Make smooth colour with sensor-like noise."""
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 256, (height // 24 + 2, width // 24 + 2, 3), np.uint8)
    smooth = np.asarray(Image.fromarray(coarse).resize((width, height), BICUBIC), np.float32)
    noise = rng.normal(0, 5, (height, width, 1)).astype(np.float32)
    pixels: NDArray[np.uint8] = np.clip(smooth + noise, 0, 255).astype(np.uint8)
    return pixels


def picture(width: int, height: int, kind: str = "JPEG", **options: Any) -> bytes:
    """Give an encoded photo."""
    encoded = BytesIO()
    if kind == "JPEG":
        options.setdefault("quality", 85)
    Image.fromarray(photo(width, height)).save(encoded, kind, **options)
    return encoded.getvalue()


def checkpoint_order(data: bytes) -> NDArray[np.float32]:
    """Do what the checkpoint's own processor does, step by step."""
    image = Image.open(BytesIO(data)).convert("RGB")
    plan = plan_resize(*image.size, KIMI)
    image = image.resize((plan.new_width, plan.new_height), BICUBIC)
    right, bottom = plan.padded_width - plan.new_width, plan.padded_height - plan.new_height
    canvas = np.pad(np.asarray(image), ((0, bottom), (0, right), (0, 0)))
    values = (canvas / 255.0).astype(np.float32)
    values -= np.array(HALF)
    values *= 1 / np.array(HALF)
    values = np.stack([values])
    _, rows, columns = plan.grid_thw
    patches = values.reshape(1, rows, 14, columns, 14, 3).transpose(0, 1, 3, 5, 2, 4)
    return patches.reshape(-1, 3, 14, 14)


def on_one_thread() -> None:
    """Start again with one thread for every library: CPU time would count them all."""
    if any(os.environ.get(name) != value for name, value in ONE_THREAD.items()):
        os.environ.update(ONE_THREAD)
        os.execv(sys.executable, [sys.executable, *sys.argv])
