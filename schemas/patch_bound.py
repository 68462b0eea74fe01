"""How many patches one image can have, at most: the size of an output slot, without numpy.

The plan needs the bound before anything that could count exactly is imported.
"""

from __future__ import annotations

from .vocabulary import DTYPES, ImageDtype
from .worker import ResizeConfig

CHANNELS = 3


def max_patches(resize: ResizeConfig) -> int:
    """Give an upper bound on the patches of one image after padding, for images of any size.

    With patch p, merge m, limits L (patches) and S (one side), and sides A = w/p, B = h/p:
    the scale t <= 1 keeps x*y <= L for x = t*max(1, floor(A)), y = t*max(1, floor(B)), and
    x, y <= S. A side after scaling is t*A < x + 1, after padding to a multiple of m less than
    x + 1 + m, and the same for y. The grid has therefore less than
    (x + 1 + m)(y + 1 + m) <= L + (m + 1)(x + y) + (m + 1)^2 patches, and x + y on x*y <= L is
    largest at the end of the range: S + L/S. No side exceeds S rounded up to a multiple of m.
    """
    merge = resize.merge_kernel_size
    limit = resize.in_patch_limit
    side = -(-resize.patch_limit_on_one_side // merge) * merge
    other = min(side, -(-limit // side))
    return min(limit + (merge + 1) * (side + other) + (merge + 1) ** 2, side * side)


def patch_bytes(resize: ResizeConfig, dtype: ImageDtype) -> int:
    """Give the bytes of one patch of pixel_values."""
    return CHANNELS * resize.patch_size**2 * DTYPES[dtype].num_bytes


def slot_bytes(resize: ResizeConfig, dtype: ImageDtype) -> int:
    """Give the size of a slot, which may hold the pixels as base64 for a JSON answer."""
    return 4 * -(-max_patches(resize) * patch_bytes(resize, dtype) // 3)
