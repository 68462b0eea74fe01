"""How much memory of the device one image takes: pure arithmetic, also for the plan's budget."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kimi_serve.schemas.vocabulary import DTYPES, ImageDtype
from kimi_serve.schemas.worker import ResizeConfig

MIB = 2**20

# Work goes through the image in strips of at most this size, so that only the decoded picture
# grows. One row of patches of the widest picture (65535 pixels down to 7168) still fits.
STRIP_BYTES = 48 * MIB

_SAMPLES = 3
# One output value of a filter pass: the byte that is read, its product, the sum, the result.
_PASS_BYTES = 1 + 4 + 4 + 1
# One value of the canvas: padded, in patch order, as an index.
_CANVAS_BYTES = 1 + 1 + 4
_BICUBIC_SUPPORT = 2.0
# torch's allocator rounds large blocks up to this and keeps what it freed.
_BLOCK_BYTES = 2 * MIB


@dataclass(frozen=True, slots=True)
class StripPlan:
    """`rows` of patches at a time, and the bytes of the device that the whole image needs."""

    rows: int
    strip_bytes: int
    decoded_bytes: int

    @property
    def peak_bytes(self) -> int:
        return self.decoded_bytes + self.strip_bytes + 2 * _BLOCK_BYTES


def plan_strips(
    size: tuple[int, int],
    resized: tuple[int, int],
    resize: ResizeConfig,
    dtype: ImageDtype,
    *,
    is_turned: bool = False,
) -> StripPlan:
    """Choose the rows of a strip for an image of `size` that becomes `resized` (width, height).

    `is_turned` doubles the picture: turning it upright on the device makes a copy.
    """
    width, height = size
    new_width, new_height = resized
    scale = height / new_height
    # Source rows that one more output row needs, and those that every strip needs besides.
    each, once = (scale, 2 * _BICUBIC_SUPPORT * max(1.0, scale)) if height != new_height else (1, 0)
    line = (new_width + 2 * resize.patch_size) * _SAMPLES
    across = _PASS_BYTES if new_width != width else 0
    down = _PASS_BYTES if new_height != height else 0
    itemsize = DTYPES[dtype].num_bytes
    per_row = math.ceil(
        line * resize.patch_size * (each * across + down + _CANVAS_BYTES + itemsize)
    )
    fixed = math.ceil(line * once * across)
    total_rows = -(-new_height // resize.patch_size)
    rows = max(1, min(total_rows, (STRIP_BYTES - fixed) // per_row))
    decoded = width * height * _SAMPLES * (2 if is_turned else 1)
    return StripPlan(rows, fixed + rows * per_row, decoded)


def largest_peak_bytes(max_pixels: int) -> int:
    """Give the most that one image of at most `max_pixels` takes: decoded, turned, one strip."""
    return 2 * max_pixels * _SAMPLES + STRIP_BYTES + 2 * _BLOCK_BYTES
