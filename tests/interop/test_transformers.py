"""Our answers beside transformers' native processor: skipped without the gpu extra.

transformers resizes with another kernel, so pixels are compared where nothing is resized; grids
and token counts must agree for every size.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from kimi_serve.preprocess.images.image_processor import ImageProcessor
from kimi_serve.preprocess.images.kimi import plan_resize
from kimi_serve.schemas.worker import ImageRules, ResizeConfig

torch = pytest.importorskip("torch", reason="the gpu extra (torch) is not installed")
transformers = pytest.importorskip(
    "transformers", reason="the gpu extra (transformers) is not installed"
)

DEMO = Path(__file__).parents[2] / "preprocess" / "demo_checkpoint"
RESIZE = ResizeConfig(16384, 512, 14, 2, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
SIZES = [
    (1, 1), (13, 13), (27, 29), (28, 28), (57, 33), (224, 224), (640, 480), (1000, 1000),
    (1920, 1080), (7168, 100), (1793, 1793), (4000, 3000), (20000, 50), (57, 9000), (1440, 3120),
]  # fmt: skip


@pytest.fixture(scope="module")
def native() -> Any:
    return transformers.AutoImageProcessor.from_pretrained(str(DEMO))


def noise(width: int, height: int) -> Image.Image:
    values = np.random.default_rng(width * height).integers(0, 256, (height, width, 3))
    return Image.fromarray(values.astype(np.uint8))


@pytest.mark.parametrize("size", SIZES, ids=[f"{width}x{height}" for width, height in SIZES])
def test_grids_and_counts_agree(native: Any, size: tuple[int, int]) -> None:
    theirs = native(images=[Image.new("RGB", size)], return_tensors="pt")["image_grid_thw"]
    ours = plan_resize(*size, RESIZE)
    assert theirs.tolist() == [list(ours.grid_thw)]
    assert ours.num_tokens == ours.grid_thw[1] * ours.grid_thw[2] // 4


@pytest.mark.parametrize("size", [(57, 33), (224, 224), (640, 480), (1920, 1080)])
def test_pixels_agree_in_bfloat16_where_nothing_is_resized(
    native: Any, size: tuple[int, int]
) -> None:
    picture = noise(*size)
    theirs = native(images=[picture], return_tensors="pt")["pixel_values"].to(torch.bfloat16)
    buffer = io.BytesIO()
    picture.save(buffer, format="PNG")
    rules = ImageRules("checkpoint", (255, 255, 255), "bfloat16", 10**8, 10**8, ("png",))
    _, ours = ImageProcessor(RESIZE, rules).process_array(buffer.getvalue())
    assert np.array_equal(theirs.view(torch.uint16).numpy(), ours)
