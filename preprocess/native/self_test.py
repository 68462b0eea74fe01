"""Compares the kernel with the installed Pillow and the pure path, in milliseconds."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from io import BytesIO
from itertools import chain, product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, PngImagePlugin

from kimi_serve.schemas.vocabulary import ImageDtype
from kimi_serve.schemas.worker import ResizeConfig

from ..images.kimi import ResizePlan, plan_resize
from ..images.normalise import Normaliser, normalisation_table, to_bfloat16
from ..images.picture import Picture, PureWriter
from .kernel import STREAM_FROM, NativeWriter, misfit, resize, unfilter

_HALF, _CLIP = (0.5, 0.5, 0.5), (0.48145466, 0.4578275, 0.40821073)
_CLIP_STD = (0.26862954, 0.26130258, 0.27577711)
# Old and new size: both ways, one way, mild, steep, tall, wide, one pixel.
_RESIZES = (
    ((97, 61), (43, 29)),
    ((40, 133), (37, 20)),
    ((130, 33), (130, 17)),
    ((131, 20), (66, 20)),
    ((300, 9), (9, 4)),
    ((1, 1), (1, 1)),
)
_CONFIGS = (
    ResizeConfig(40, 512, 14, 2, _HALF, _HALF),
    ResizeConfig(16384, 512, 14, 2, _CLIP, _CLIP_STD),
)
_IMAGES = ((131, 94), (29, 57))
# The latter two: the module that was found is of another version.
_UNFIT = (ValueError, MemoryError, AttributeError, TypeError)


def find_fault(level: str) -> str | None:
    """Say what a level of the kernel does differently, None when nothing."""
    try:
        return next(chain(_resize_faults(level), _patch_faults(level)), None)
    except _UNFIT as error:
        return str(error)


def find_png_fault() -> str | None:
    """Say what the kernel makes of PNG rows that Pillow does not, None when nothing."""
    try:
        return next(_png_faults(), None)
    except _UNFIT as error:
        return str(error)


def _png_faults() -> Iterator[str]:
    width, count = 61, 25
    for channels, colour in ((3, 2), (4, 6)):
        rows = np.random.default_rng(channels).integers(
            0, 256, (1 + count, 1 + width * channels), np.uint8
        )
        rows[0] = 0
        # Every filter, and after every other.
        rows[1:, 0] = [number // 5 if number % 2 else number % 5 for number in range(count)]
        expected = _opened(rows[1:].tobytes(), width, count, colour)
        got = np.zeros((count, width, 3), np.uint8)
        unfilter(bytearray(rows.tobytes()), width, channels, count, got)
        if not np.array_equal(got, expected):
            yield f"{channels} channels: {np.count_nonzero(got != expected)} bytes differ"


def _opened(rows: bytes, width: int, height: int, colour: int) -> NDArray[np.uint8]:
    """Have Pillow open a PNG of these filtered rows."""
    encoded = BytesIO(b"\x89PNG\r\n\x1a\n")
    encoded.seek(0, 2)
    header = width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes((8, colour, 0, 0, 0))
    for kind, body in ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")):
        PngImagePlugin.putchunk(encoded, kind, body)
    return np.asarray(Image.open(encoded).convert("RGB"))


def _resize_faults(level: str) -> Iterator[str]:
    for old, new in _RESIZES:
        pixels = _noise(*old)
        for vertical_first in (False, True):
            expected = _by_pillow(pixels, new, vertical_first=vertical_first)
            for name, picture in _forms(pixels):
                got = resize(level, picture, new, vertical_first=vertical_first)
                if not np.array_equal(got, expected):
                    order = "vertical" if vertical_first else "horizontal"
                    wrong = np.count_nonzero(got != expected)
                    yield (
                        f"{name} {old[0]}x{old[1]} -> {new[0]}x{new[1]}, {order} pass first: "
                        f"{wrong} of {got.size} bytes differ from Pillow"
                    )


def _patch_faults(level: str) -> Iterator[str]:
    for config in _CONFIGS:
        if (words := misfit(config)) is not None:
            yield words
        for width, height in _IMAGES:
            pixels = _noise(width, height)
            plan = plan_resize(width, height, config)
            expected = _pure_patches(pixels, plan, config)
            for dtype, stream_from in product(expected, (STREAM_FROM, 0)):
                native = NativeWriter(config, dtype, level, stream_from)
                for name, picture in _forms(pixels):
                    got = np.zeros_like(expected[dtype])
                    native.write(picture, plan, got)
                    if got.tobytes() != expected[dtype].tobytes():
                        words = "differ, streamed," if stream_from == 0 else "differ"
                        size = f"{width}x{height}"
                        yield f"{dtype} patches of {name} {size} {words} from the pure path"


def _pure_patches(
    pixels: NDArray[np.uint8], plan: ResizePlan, config: ResizeConfig
) -> dict[ImageDtype, NDArray[Any]]:
    """Give patches of every type: the values are looked up, which needs no big tables."""
    patches = np.empty((plan.num_patches, 3, config.patch_size, config.patch_size), np.uint8)
    PureWriter(Normaliser(config, "uint8")).write(pixels, plan, patches)
    values = normalisation_table(config)[np.arange(3)[:, None, None], patches]
    return {"uint8": patches, "float32": values, "bfloat16": to_bfloat16(values)}


def _noise(width: int, height: int) -> NDArray[np.uint8]:
    """Give noise over the whole range, and black and white in its upper half: what overshoots."""
    pixels = np.random.default_rng(width).integers(0, 256, (height, width, 3), np.uint8)
    pixels[: height // 2] = np.where(pixels[: height // 2] < 128, 0, 255)
    return pixels


def _forms(pixels: NDArray[np.uint8]) -> Iterator[tuple[str, Picture]]:
    yield "RGB", pixels
    yield "RGBX", Image.fromarray(pixels)


def _by_pillow(
    pixels: NDArray[np.uint8], new: tuple[int, int], *, vertical_first: bool
) -> NDArray[np.uint8]:
    """Resize by two explicit calls, so that the order does not depend on Pillow's version."""
    image = Image.fromarray(pixels)
    between = (image.width, new[1]) if vertical_first else (new[0], image.height)
    for size in (between, new):
        if image.size != size:
            image = image.resize(size, Image.Resampling.BICUBIC)
    return np.asarray(image)
