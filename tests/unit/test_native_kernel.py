"""Every level of the native kernel against Pillow and the pure path: no byte may differ.

KERNEL_ROUNDS=20000 looks at more sizes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
from image_samples import KIMI
from native_levels import LEVELS, needs_kernel
from numpy.typing import NDArray
from PIL import Image

from kimi_serve.preprocess.images.kimi import plan_resize
from kimi_serve.preprocess.images.normalise import NUMPY_DTYPES, Normaliser
from kimi_serve.preprocess.images.picture import Picture, PureWriter
from kimi_serve.preprocess.native.kernel import NativeWriter, resize
from kimi_serve.schemas.vocabulary import ImageDtype
from kimi_serve.schemas.worker import ResizeConfig

pytestmark = needs_kernel
ROUNDS = int(os.environ.get("KERNEL_ROUNDS", "2000"))
DTYPES: tuple[ImageDtype, ...] = get_args(ImageDtype)
CLIP = replace(
    KIMI,
    image_mean=(0.48145466, 0.4578275, 0.40821073),
    image_std=(0.26862954, 0.26130258, 0.27577711),
)
ZERO_MEAN = replace(KIMI, image_mean=(0.0, 0.0, 0.0), image_std=(1.0, 1.0, 1.0))
# One pixel, one line, long and tall, not multiples of 28, over the budget, taller than 1:2.
SIZES = [
    (1, 1), (1, 57), (57, 1), (27, 29), (28, 28), (641, 479), (1793, 1793), (1440, 3120),
    (20000, 50), (50, 20000), (7168, 100), (9000, 57), (3001, 17),
]  # fmt: skip


def _pixels(rng: np.random.Generator, width: int, height: int) -> NDArray[np.uint8]:
    """Give noise, half of the time only black and white: the filter overshoots most there."""
    pixels = rng.integers(0, 256, (height, width, 3), np.uint8)
    return pixels if rng.random() < 0.5 else np.where(pixels < 128, np.uint8(0), np.uint8(255))


def _forms(pixels: NDArray[np.uint8]) -> Iterator[Picture]:
    """Give the pixels with three and with four bytes each, and as Pillow stores them."""
    yield pixels
    yield np.dstack([pixels, pixels[:, :, 1] ^ np.uint8(255)]).astype(np.uint8)
    yield Image.fromarray(pixels)


def _by_pillow(
    pixels: NDArray[np.uint8], new: tuple[int, int], *, vertical_first: bool
) -> NDArray[np.uint8]:
    image = Image.fromarray(pixels)
    between = (image.width, new[1]) if vertical_first else (new[0], image.height)
    for size in (between, new):
        if size != image.size:
            image = image.resize(size, Image.Resampling.BICUBIC)
    return np.asarray(image)


def _patches(
    writer: NativeWriter | PureWriter, picture: Picture, config: ResizeConfig, dtype: ImageDtype
) -> NDArray[Any]:
    height, width = np.asarray(picture).shape[:2]
    plan = plan_resize(width, height, config)
    out = np.empty((plan.num_patches, 3, config.patch_size, config.patch_size), NUMPY_DTYPES[dtype])
    writer.write(picture, plan, out)
    return out


def _side(rng: np.random.Generator) -> int:
    return int(np.exp(rng.uniform(0, 4.6)))


def test_resize_of_random_sizes() -> None:
    rng = np.random.default_rng(1)
    for number in range(ROUNDS):
        old = _side(rng), _side(rng)
        # Down, and now and then up or not at all.
        new = tuple(int(rng.integers(1, side * (1 + (number % 9 == 0)) + 1)) for side in old)
        new = (old[0] if number % 5 == 0 else new[0], old[1] if number % 7 == 0 else new[1])
        pixels = _pixels(rng, *old)
        form = list(_forms(pixels))[number % 3]
        for vertical_first in (False, True):
            expected = _by_pillow(pixels, new, vertical_first=vertical_first)
            for level in LEVELS:
                got = resize(level, form, new, vertical_first=vertical_first)
                assert got.tobytes() == expected.tobytes(), (level, old, new, vertical_first)


def test_patches_of_random_sizes() -> None:
    rng = np.random.default_rng(2)
    for number in range(ROUNDS // 2):
        pixels = _pixels(rng, _side(rng), _side(rng))
        config = replace(
            (KIMI, KIMI, CLIP, ZERO_MEAN)[number % 4],
            patch_size=(14, 14, 14, 16, 8, 7, 28, 3)[number % 8],
            in_patch_limit=int(rng.integers(1, 60)),
            merge_kernel_size=1 + number % 3,
        )
        form = list(_forms(pixels))[number % 3]
        dtype = DTYPES[number % 3 if number % 2 else 0]
        pure = _patches(PureWriter(Normaliser(config, dtype)), pixels, config, dtype)
        for level in LEVELS:
            native = _patches(NativeWriter(config, dtype, level), form, config, dtype)
            assert native.tobytes() == pure.tobytes(), (level, dtype, pixels.shape, config)


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def test_patches_of_named_sizes(size: tuple[int, int]) -> None:
    pixels = _pixels(np.random.default_rng(3), *size)
    for dtype in DTYPES if pixels.size < 2**22 else DTYPES[:1]:
        pure = _patches(PureWriter(Normaliser(KIMI, dtype)), pixels, KIMI, dtype)
        for level in LEVELS:
            for form in _forms(pixels):
                native = _patches(NativeWriter(KIMI, dtype, level), form, KIMI, dtype)
                assert native.tobytes() == pure.tobytes(), (level, dtype)


def test_steep_scales() -> None:
    pixels = _pixels(np.random.default_rng(4), 3000, 40)
    for new in ((1, 1), (7, 3), (100, 40), (249, 40), (3000, 1)):
        expected = _by_pillow(pixels, new, vertical_first=False)
        for level in LEVELS:
            for form in _forms(pixels):
                got = resize(level, form, new, vertical_first=False)
                assert got.tobytes() == expected.tobytes(), (level, new)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("level", LEVELS)
def test_any_place_of_the_output(level: str, dtype: ImageDtype) -> None:
    """Also one that streamed stores do not like; what lies around it stays."""
    pixels = _pixels(np.random.default_rng(5), 1100, 1000)
    pure = _patches(PureWriter(Normaliser(KIMI, dtype)), pixels, KIMI, dtype)
    writer, plan = NativeWriter(KIMI, dtype, level), plan_resize(1100, 1000, KIMI)
    for start in (0, 1, 4, 36, 64):
        out = np.full(pure.nbytes + 200, 0xEE, np.uint8)
        writer.write(pixels, plan, out[start:])
        end = start + pure.nbytes
        assert out[start:end].tobytes() == pure.tobytes()
        assert (out[:start] == 0xEE).all()
        assert (out[end:] == 0xEE).all()


def test_threads_do_not_see_each_other() -> None:
    rng = np.random.default_rng(6)
    config = replace(KIMI, in_patch_limit=200)
    images = [_pixels(rng, 300 + 17 * n, 250 - 9 * n) for n in range(12)]
    pure = PureWriter(Normaliser(config, "float32"))
    expected = [_patches(pure, image, config, "float32").tobytes() for image in images]
    writer = NativeWriter(config, "float32", LEVELS[0])
    with ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(_patches, writer, images[n % 12], config, "float32") for n in range(96)]
        for number, job in enumerate(jobs):
            assert job.result().tobytes() == expected[number % 12]


def test_a_picture_in_several_blocks_of_memory() -> None:
    """Pillow cannot hand out more than about four megapixels without a copy."""
    pixels = _pixels(np.random.default_rng(7), 3000, 2000)
    expected = _by_pillow(pixels, (90, 60), vertical_first=False)
    got = resize(LEVELS[0], Image.fromarray(pixels), (90, 60), vertical_first=False)
    assert got.tobytes() == expected.tobytes()
