"""Plain PNGs decoded a few rows at a time, bit-equal to Pillow; everything else is left to it.

Pillow reads the header and keeps its judgement: what is decoded here is 8-bit RGB or RGBA, neither
interlaced nor animated, of which nothing follows the pixels. zlib-ng, of the same family as the
inflate inside Pillow, checks the whole stream; the kernel undoes the filters of the rows while
they are in the cache.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, PngImagePlugin
from zlib_ng import zlib_ng

logger = logging.getLogger(__name__)

Pixels = NDArray[np.uint8]

Unfilter = Callable[[bytearray, int, int, int, Pixels], bool]
"""Rows with their filters, the one above first; width, channels, count; where RGB goes.

Gives whether every alpha is 255; raises ValueError at an unknown filter.
"""

_zlib: Any = zlib_ng  # its stubs are incomplete
_InflateError: type[Exception] = _zlib.error
_CHANNELS = {"RGB": 3, "RGBA": 4}
_IEND = b"\0\0\0\0IEND\xae\x42\x60\x82"
# Encoders write 8 KiB and more into a chunk; Pillow is as slow as we with millions of them.
_MOST_CHUNKS = 1 << 16
_PIECE = 1 << 16
_BATCH = 1 << 18  # bytes of rows that are inflated and unfiltered at once


def plain_pixels(
    data: bytes,
    image: Image.Image,
    take: Callable[[int], Pixels],
    unfilter: Unfilter,
    *,
    must_be_opaque: bool,
) -> Pixels | None:
    """Decode into memory that `take` gives, without alpha; None leaves the file to Pillow.

    With `must_be_opaque` that is also done with every picture that alpha changes.
    """
    found = _plain(image)
    if found is None:
        return None
    channels, start = found
    chunks = _image_data(data, start)
    if chunks is None:
        return None
    width, height = image.size
    pixels = take(3 * width * height)[: 3 * width * height]
    try:
        is_whole = _decode(_pieces(chunks), (width, channels), unfilter, pixels, must_be_opaque)
    except (_InflateError, ValueError) as error:
        logger.debug("a PNG is left to Pillow: %s", error)
        return None
    return pixels.reshape(height, width, 3) if is_whole else None


def _plain(image: Image.Image) -> tuple[int, int] | None:
    """Give the channels and the start of the stream of an opened file that is as most are."""
    if not isinstance(image, PngImagePlugin.PngImageFile) or len(image.tile) != 1:
        return None
    tile = image.tile[0]
    if image.info.keys() & {"interlace", "transparency", "loop", "default_image"}:
        return None
    is_usual = (
        not image.is_animated
        and tile.codec_name == "zip"
        and tile.extents == (0, 0, *image.size)
        and tile.args == image.mode
    )
    channels = _CHANNELS.get(image.mode)
    return None if channels is None or not is_usual else (channels, tile.offset)


def _image_data(data: bytes, start: int) -> list[memoryview] | None:
    """Give the bodies of consecutive IDAT chunks if they are all whole and the end follows."""
    view = memoryview(data)
    chunks: list[memoryview] = []
    at = start - 8
    while data[at + 4 : at + 8] == b"IDAT":
        body = at + 8
        at = body + int.from_bytes(data[at : at + 4], "big") + 4
        chunks.append(view[body : at - 4])
        if len(chunks) > _MOST_CHUNKS:
            return None
    return chunks if data[at : at + 12] == _IEND else None


def _pieces(chunks: Iterable[memoryview]) -> Iterator[memoryview]:
    for chunk in chunks:
        for at in range(0, len(chunk), _PIECE):
            yield chunk[at : at + _PIECE]


def _decode(
    pieces: Iterable[memoryview],
    row: tuple[int, int],
    unfilter: Unfilter,
    out: Pixels,
    must_be_opaque: bool,
) -> bool:
    """Fill `out` from rows of (pixels, channels); say whether the stream gave exactly that."""
    width, channels = row
    height = out.size // (3 * width)
    stride = 1 + width * channels
    batch = max(1, min(height, _BATCH // stride))
    rows = bytearray((1 + batch) * stride)  # the first is the one above, as it was decoded
    y = filled = 0
    inflate = _zlib.decompressobj()
    for piece in pieces:
        if inflate.eof:
            return False
        rest: bytes | memoryview = piece
        got, wanted = b"", 0
        while len(got) == wanted and not inflate.eof:
            count = min(batch, height - y)
            wanted = count * stride - filled if count else 1
            got = inflate.decompress(rest, wanted)
            rest = inflate.unconsumed_tail
            if got and not count:
                return False
            rows[stride + filled : stride + filled + len(got)] = got
            filled += len(got)
            if count and filled == count * stride:
                start = 3 * width * y
                is_opaque = unfilter(rows, width, channels, count, out[start:])
                if must_be_opaque and not is_opaque:
                    return False
                rows[:stride] = rows[count * stride : (count + 1) * stride]
                y, filled = y + count, 0
    return bool(y == height and inflate.eof and not inflate.unused_data)
