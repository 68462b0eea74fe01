"""Pixels as base64 in the slot that they lie in: no second place for tens of megabytes."""

from __future__ import annotations

import pybase64

# A multiple of three, so that only the end is padded; it and its text stay in a small cache.
_PIECE_BYTES = 3 << 15


def write_base64(raw: memoryview, out: memoryview) -> int:
    """Write the base64 of `raw` to the start of `out` and give its length.

    `raw` may begin inside `out`, a quarter of it or more behind its start, when its base64 fits:
    four bytes of text for three that are read never reach what is not read yet.
    """
    written = 0
    for start in range(0, len(raw), _PIECE_BYTES):
        text = pybase64.b64encode(raw[start : start + _PIECE_BYTES])
        out[written : written + len(text)] = text
        written += len(text)
    return written
