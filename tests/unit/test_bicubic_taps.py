"""The integer filter beside the Pillow that is installed, one pass at a time."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from kimi_serve.preprocess.cuda.filters import PRECISION_BITS, bicubic_taps


def resized(line: NDArray[np.uint8], new_size: int) -> NDArray[np.uint8]:
    taps = bicubic_taps(len(line), new_size)
    total = np.full(new_size, 1 << (PRECISION_BITS - 1), np.int64)
    for index, weight in zip(taps.index, taps.weight, strict=True):
        total += line[index].astype(np.int64) * weight
    assert np.abs(total).max() < 2**31, "what Pillow and the device sum in 32 bits"
    return (total >> PRECISION_BITS).clip(0, 255).astype(np.uint8)


SIZES = [(2, 1), (57, 56), (1000, 999), (4000, 2073), (3000, 1554), (9000, 7168), (65535, 7168)]


@pytest.mark.parametrize(("size", "new_size"), SIZES)
def test_one_pass_equals_pillow(size: int, new_size: int) -> None:
    random = np.random.default_rng(size)
    for line in (
        random.integers(0, 256, size, np.uint8),
        # Extremes make the filter overshoot at both ends.
        (random.integers(0, 2, size) * 255).astype(np.uint8),
    ):
        image = Image.fromarray(line[None]).resize((new_size, 1), Image.Resampling.BICUBIC)
        assert np.array_equal(resized(line, new_size), np.asarray(image)[0])


def test_random_sizes_equal_pillow() -> None:
    random = np.random.default_rng(7)
    for _ in range(200):
        size = int(random.integers(2, 1200))
        new_size = int(random.integers(1, size))
        line = random.integers(0, 256, size, np.uint8)
        image = Image.fromarray(line[:, None]).resize((1, new_size), Image.Resampling.BICUBIC)
        assert np.array_equal(resized(line, new_size), np.asarray(image)[:, 0]), (size, new_size)


def test_the_reach_of_a_strip_is_what_its_taps_read() -> None:
    taps = bicubic_taps(1000, 500)
    low, high = taps.reach(100, 114)
    assert (low, high) == (int(taps.index[:, 100:114].min()), int(taps.index[:, 100:114].max()) + 1)
    assert 190 <= low < high <= 240
    assert taps.reach(0, 500) == (0, 1000)
