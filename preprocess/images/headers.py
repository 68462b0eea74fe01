"""What GIF and WebP headers declare, read before a decoder sees the bytes."""

from __future__ import annotations

import re
from dataclasses import dataclass

_GIF_BLOCK = re.compile(rb"[,;!]")


@dataclass(frozen=True, slots=True)
class Declared:
    """Width and height, and whether indexed colours have a table."""

    size: tuple[int, int]
    has_colours: bool = True


def read_header(data: bytes, image_format: str) -> Declared | None:
    """Read the header of a GIF or WebP; None when it is cut or another format."""
    if image_format == "webp":
        size = _webp_size(data)
        return None if size is None else Declared(size)
    if image_format == "gif":
        return _gif_header(data)
    return None


def _webp_size(data: bytes) -> tuple[int, int] | None:
    if len(data) < 30:
        return None
    kind = data[12:16]
    if kind == b"VP8X":
        return _int(data, 24, 3) + 1, _int(data, 27, 3) + 1
    if kind == b"VP8L":
        bits = _int(data, 21, 4)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8 ":
        return _int(data, 26, 2) & 0x3FFF, _int(data, 28, 2) & 0x3FFF
    return None


def _gif_header(data: bytes) -> Declared | None:
    """Give the canvas, grown to hold the first frame as decoders do."""
    if len(data) < 13:
        return None
    width, height = _int(data, 6, 2), _int(data, 8, 2)
    at = _gif_first_frame(data)
    if at is None:
        return Declared((width, height))
    right = _int(data, at + 1, 2) + _int(data, at + 5, 2)
    bottom = _int(data, at + 3, 2) + _int(data, at + 7, 2)
    has_colours = bool((data[10] | data[at + 9]) & 0x80)
    return Declared((max(width, right), max(height, bottom)), has_colours)


def _gif_first_frame(data: bytes) -> int | None:
    """Give the offset of the first image descriptor; stray bytes before it are skipped."""
    flags = data[10]
    at = 13 + (3 << (flags & 7) + 1 if flags & 0x80 else 0)
    while (found := _GIF_BLOCK.search(data, at)) is not None and found.start() + 10 <= len(data):
        match found[0]:
            case b",":
                return found.start()
            case b"!":
                at = _gif_blocks_end(data, found.start() + 2)
            case _:
                return None
    return None


def _gif_blocks_end(data: bytes, at: int) -> int:
    """Skip data blocks up to the empty one that ends them."""
    while at < len(data) and data[at]:
        at += data[at] + 1
    return at + 1


def _int(data: bytes, at: int, count: int) -> int:
    return int.from_bytes(data[at : at + count], "little")
