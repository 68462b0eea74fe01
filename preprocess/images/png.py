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
        rows = _Rows(width, channels, unfilter, pixels)
        is_whole = _decode(_pieces(chunks), rows, must_be_opaque=must_be_opaque)
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


class _Rows:
    """Rows of a known size, unfiltered a batch at a time as they come in."""

    def __init__(self, width: int, channels: int, unfilter: Unfilter, out: Pixels) -> None:
        self._width, self._channels, self._unfilter, self._out = width, channels, unfilter, out
        self._stride = 1 + width * channels
        self._left = out.size // (3 * width)
        self._batch = max(1, min(self._left, _BATCH // self._stride))
        # The first is the one above, as it was decoded.
        self._rows = bytearray((1 + self._batch) * self._stride)
        self._filled = 0
        self.is_opaque = True

    @property
    def wanted(self) -> int:
        """How many bytes the batch still lacks; 0 after the last row."""
        return min(self._batch, self._left) * self._stride - self._filled

    def add(self, data: bytes) -> None:
        """Take what is no more than wanted."""
        at = self._stride + self._filled
        self._rows[at : at + len(data)] = data
        self._filled += len(data)
        if data and not self.wanted:
            self._finish_batch()

    def _finish_batch(self) -> None:
        count, end = min(self._batch, self._left), self._filled
        start = self._out.size - 3 * self._width * self._left
        args = self._rows, self._width, self._channels, count, self._out[start:]
        self.is_opaque &= self._unfilter(*args)
        self._rows[: self._stride] = self._rows[end : end + self._stride]
        self._left, self._filled = self._left - count, 0


def _decode(pieces: Iterable[memoryview], rows: _Rows, *, must_be_opaque: bool) -> bool:
    """Fill the rows; say whether the stream gave exactly them, opaque where it must be."""
    inflate = _zlib.decompressobj()
    for piece in pieces:
        if inflate.eof:
            return False
        rest: bytes | memoryview = piece
        got, wanted = b"", 0
        while len(got) == wanted and not inflate.eof:
            # A byte too many shows a stream that is too long; none reads its checksum.
            wanted = rows.wanted or 1
            got = inflate.decompress(rest, wanted)
            rest = inflate.unconsumed_tail
            if len(got) > rows.wanted:
                return False
            rows.add(got)
            if must_be_opaque and not rows.is_opaque:
                return False
    return bool(not rows.wanted and inflate.eof and not inflate.unused_data)
