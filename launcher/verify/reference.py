"""The checkpoint's own order of steps, once more: Pillow and numpy, sharing no code with workers.

What `image.policy: checkpoint` promises is equality with this in every bit. Two calls resize,
because from Pillow 12.2 on one call may take the vertical pass first.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from io import BytesIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from kimi_serve.schemas.worker import ResizeConfig


@dataclass(frozen=True, slots=True, eq=False)
class ReferenceImage:
    """pixel_values of one image, its grid and its token count."""

    values: NDArray[np.float32]
    grid_thw: tuple[int, int, int]
    tokens: int


def rgb_pixels(data: bytes) -> Image.Image:
    """Open as the checkpoint does: no orientation, alpha dropped."""
    with warnings.catch_warnings(), Image.open(BytesIO(data)) as image:
        warnings.simplefilter("ignore")  # that transparency is dropped is meant
        return image.convert("RGB")


def reference(data: bytes, config: ResizeConfig) -> ReferenceImage:
    """Put one image through the steps of the checkpoint's remote code."""
    image = rgb_pixels(data)
    patch = config.patch_size
    image = _scaled(image, config)
    new_width, new_height = image.size
    block = patch * config.merge_kernel_size
    right, below = -new_width % block, -new_height % block
    canvas = np.pad(np.asarray(image), ((0, below), (0, right), (0, 0)))
    values = (canvas / 255.0).astype(np.float32)
    values -= np.array(config.image_mean, np.float64)
    values *= 1.0 / np.array(config.image_std, np.float64)
    rows, columns = canvas.shape[0] // patch, canvas.shape[1] // patch
    patches = values.reshape(rows, patch, columns, patch, 3).transpose(0, 2, 4, 1, 3)
    merged = config.merge_kernel_size**2
    return ReferenceImage(
        np.ascontiguousarray(patches).reshape(rows * columns, 3, patch, patch),
        (1, rows, columns),
        rows * columns // merged,
    )


def _scaled(image: Image.Image, config: ResizeConfig) -> Image.Image:
    width, height = image.size
    patch, side = config.patch_size, config.patch_limit_on_one_side * config.patch_size
    counted = max(1.0, width // patch) * max(1.0, height // patch)
    scale = min(1.0, math.sqrt(config.in_patch_limit / counted), side / width, side / height)
    new_width = min(max(1, int(width * scale)), side)
    new_height = min(max(1, int(height * scale)), side)
    for size in ((new_width, height), (new_width, new_height)):
        if image.size != size:
            image = image.resize(size, Image.Resampling.BICUBIC)
    return image
