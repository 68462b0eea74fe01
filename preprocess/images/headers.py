"""Sizes that GIF and WebP headers declare, read before a decoder sees the bytes."""

from __future__ import annotations

from kimi_serve.schemas.errors import MediaError


def declared_size(data: bytes, image_format: str) -> tuple[int, int] | None:
    """Give (width, height) of a GIF or WebP header, None when it is cut or another format."""
    if image_format == "webp":
        return _webp_size(data)
    if image_format == "gif":
        return _gif_size(data)
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


def _gif_size(data: bytes) -> tuple[int, int] | None:
    """Give the canvas, grown to hold the first frame as decoders do."""
    if len(data) < 13:
        return None
    width, height = _int(data, 6, 2), _int(data, 8, 2)
    at = _gif_first_frame(data)
    if at is None:
        return width, height
    if not (data[10] | data[at + 9]) & 0x80:
        # Without a table Pillow shows the indices as shades of almost black.
        raise MediaError("the GIF cannot be decoded: it has no colour table")
    right = _int(data, at + 1, 2) + _int(data, at + 5, 2)
    bottom = _int(data, at + 3, 2) + _int(data, at + 7, 2)
    return max(width, right), max(height, bottom)


def _gif_first_frame(data: bytes) -> int | None:
    """Give the offset of the first image descriptor; stray bytes before it are skipped."""
    flags = data[10]
    at = 13 + (3 << (flags & 7) + 1 if flags & 0x80 else 0)
    while at + 10 <= len(data):
        match data[at : at + 1]:
            case b",":
                return at
            case b";":
                return None
            case b"!":
                at = _gif_blocks_end(data, at + 2)
            case _:
                at += 1
    return None


def _gif_blocks_end(data: bytes, at: int) -> int:
    """Skip data blocks up to the empty one that ends them."""
    while at < len(data) and data[at]:
        at += data[at] + 1
    return at + 1


def _int(data: bytes, at: int, count: int) -> int:
    return int.from_bytes(data[at : at + count], "little")
