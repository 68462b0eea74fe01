"""The checkpoint's image arithmetic: pure functions from sizes to grids, and the resize itself."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from kimi_serve.schemas.worker import ResizeConfig


@dataclass(frozen=True, slots=True)
class ResizePlan:
    """What becomes of one image: its new size, the padded canvas, patches and tokens.

    `grid_thw` counts patches: (1, rows, columns).
    """

    new_width: int
    new_height: int
    padded_width: int
    padded_height: int
    grid_thw: tuple[int, int, int]
    num_tokens: int
    num_patches: int


def plan_resize(width: int, height: int, resize: ResizeConfig) -> ResizePlan:
    """Compute the plan in the checkpoint's order of float operations; never enlarges."""
    patch, limit = resize.patch_size, resize.in_patch_limit
    side = resize.patch_limit_on_one_side * patch
    by_count = math.sqrt(limit / (max(1.0, width // patch) * max(1.0, height // patch)))
    scale = min(1.0, by_count, side / width, side / height)
    new_width = min(max(1, int(width * scale)), side)
    new_height = min(max(1, int(height * scale)), side)
    block = patch * resize.merge_kernel_size
    columns, rows = -(-new_width // block), -(-new_height // block)
    merge = resize.merge_kernel_size
    return ResizePlan(
        new_width=new_width,
        new_height=new_height,
        padded_width=columns * block,
        padded_height=rows * block,
        grid_thw=(1, rows * merge, columns * merge),
        num_tokens=rows * columns,
        num_patches=rows * columns * merge * merge,
    )


def resize_pixels(pixels: NDArray[np.uint8], plan: ResizePlan) -> NDArray[np.uint8]:
    """Resize [height, width, 3] by antialiased bicubic, horizontal pass first."""
    height, width, _ = pixels.shape
    if (width, height) == (plan.new_width, plan.new_height):
        return pixels
    image = Image.fromarray(pixels)
    # Two calls: from Pillow 12.2 on, one call takes the vertical pass first for tall images.
    if width != plan.new_width:
        image = image.resize((plan.new_width, height), Image.Resampling.BICUBIC)
    if height != plan.new_height:
        image = image.resize((plan.new_width, plan.new_height), Image.Resampling.BICUBIC)
    return np.asarray(image)
