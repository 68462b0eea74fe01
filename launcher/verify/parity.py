"""How far two results of one image are apart, in levels of 8 bits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kimi_serve.schemas.image_facts import ImageFacts
from kimi_serve.schemas.worker import ResizeConfig

from .results import Bound, ImageParity

EXACT = Bound(0.0, 0.0)
# nvJPEG's inverse transform and colour conversion round otherwise than libjpeg's. The bound is the
# one that SGLang's fix of its GPU path was accepted with (sgl-project/sglang#33349).
GPU_JPEG = Bound(5.0, 0.2)
# torchvision resizes in fixed point of its own: a level or two off Pillow, more on noise.
TRANSFORMERS_RESIZED = Bound(4.0, 0.2)
# Its normalisation rounds once where the checkpoint's rounds three times: no level changes.
TRANSFORMERS_EQUAL = Bound(0.001, 0.001)


@dataclass(frozen=True, slots=True, eq=False)
class Made:
    """One image as some way made it: float32 pixel_values, grid and tokens."""

    values: NDArray[np.float32]
    grid_thw: tuple[int, int, int]
    tokens: int


def compare(
    name: str,
    facts: ImageFacts,
    resize: ResizeConfig,
    one: Made,
    other: Made,
    bound: Bound,
    note: str = "",
) -> ImageParity:
    """Compare two ways; shapes that differ count as different everywhere."""
    is_resized = (facts.width, facts.height) != facts.resized
    if one.values.shape == other.values.shape:
        worst, mean, share, level_share = _difference(one.values, other.values, resize)
    else:
        worst, mean, share, level_share = 255.0, 255.0, 1.0, 1.0
    return ImageParity(
        name=name,
        size=(facts.width, facts.height),
        format=facts.format,
        is_resized=is_resized,
        tokens=facts.num_tokens,
        max_levels=worst,
        mean_levels=mean,
        share=share,
        level_share=level_share,
        grids_equal=one.grid_thw == other.grid_thw,
        tokens_equal=one.tokens == other.tokens,
        bound=bound,
        note=note,
    )


def _difference(
    one: NDArray[np.float32], other: NDArray[np.float32], resize: ResizeConfig
) -> tuple[float, float, float, float]:
    """Give the largest and mean difference in levels, the shares of unequal bits and levels."""
    scale = 255.0 * np.array(resize.image_std, np.float32)[None, :, None, None]
    worst = total = unequal = levels = 0.0
    for start in range(0, len(one), 1024):  # a piece at a time: the arrays have 40 MB each
        part, rest = one[start : start + 1024], other[start : start + 1024]
        apart = np.abs(part - rest) * scale
        worst = max(worst, float(apart.max()))
        total += float(apart.sum(dtype=np.float64))
        levels += int((apart >= 0.5).sum())
        unequal += int((part.view(np.uint32) != rest.view(np.uint32)).sum())
    size = one.size
    return round(worst, 6), round(total / size, 6), unequal / size, levels / size
