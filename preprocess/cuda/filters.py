"""Pillow's bicubic filter as integers: the published arithmetic of its 8-bit resize.

Pillow (MIT-CMU licence) sums bytes times coefficients of 22 fractional bits in 32-bit integers
and rounds to a byte after each pass. Integer sums are the same in any order and on any device.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

PRECISION_BITS = 22
_SUPPORT = 2.0


@dataclass(frozen=True, slots=True, eq=False)
class Taps:
    """For each tap and output place: which input it reads and its weight; unused weights are 0."""

    index: NDArray[np.int32]
    weight: NDArray[np.int32]

    def reach(self, first: int, last: int) -> tuple[int, int]:
        """Give the inputs that outputs `first` to `last` read, end exclusive."""
        part = self.index[:, first:last]
        return int(part.min()), int(part.max()) + 1


@lru_cache(maxsize=64)
def bicubic_taps(size: int, new_size: int) -> Taps:
    """Compute the taps that turn `size` samples into `new_size`."""
    scale = size / new_size
    stretch = max(scale, 1.0)
    support = _SUPPORT * stretch
    count = math.ceil(support) * 2 + 1
    centre = (np.arange(new_size) + 0.5) * scale
    # Truncated like C, and never below zero.
    first = np.maximum((centre - support + 0.5).astype(np.int64), 0)
    last = np.minimum((centre + support + 0.5).astype(np.int64), size)
    place = first + np.arange(count)[:, None]
    weight = _bicubic((place - centre + 0.5) * (1.0 / stretch))
    weight[place >= last] = 0.0
    total = np.zeros(new_size)
    for tap in weight:  # one after the other, as Pillow adds them
        total += tap
    weight /= np.where(total == 0.0, 1.0, total)
    scaled = weight * (1 << PRECISION_BITS)
    whole = np.trunc(np.where(weight < 0, scaled - 0.5, scaled + 0.5)).astype(np.int32)
    index = np.minimum(place, size - 1).astype(np.int32)
    return Taps(index, whole)


def _bicubic(distance: NDArray[np.float64]) -> NDArray[np.float64]:
    a = -0.5
    x = np.abs(distance)
    near = ((a + 2.0) * x - (a + 3.0)) * x * x + 1
    far = (((x - 5) * x + 8) * x - 4) * a
    return np.where(x < 1.0, near, np.where(x < 2.0, far, 0.0))
