"""How many scans a JPEG has: every scan of a progressive one goes over all pixels."""

from __future__ import annotations

import re

import numpy as np

from kimi_serve.schemas.errors import MediaError

MAX_SCANS = 100  # encoders make about ten
# Files have a few, and a thousand with the largest profiles; we look at each.
_MAX_SEGMENTS = 1 << 16
_SCAN_WORD = 0xDAFF  # the bytes FF DA
# Markers with a length behind them, and the end. All others stand alone, or end the decoding.
_MARKER = re.compile(rb"\xff([\xc0-\xcf\xd9-\xfe])")
_START_OF_SCAN, _END = b"\xda", b"\xd9"


def require_few_scans(data: bytes) -> None:
    """Refuse what would keep a decoder busy for long; raises MediaError."""
    if has_many_marks(data) and _count_scans(data) > MAX_SCANS:
        raise MediaError(f"the JPEG has more than {MAX_SCANS} scans")


def has_many_marks(data: bytes) -> bool:
    """Tell whether FF DA stands in more places than there may be scans: what is no scan counts too.

    At even and at odd places: bytes.count takes ten times as long.
    """
    marks = sum(
        int(np.count_nonzero(np.frombuffer(data, "<u2", (len(data) - at) // 2, at) == _SCAN_WORD))
        for at in (0, 1)
    )
    return marks > MAX_SCANS


def _count_scans(data: bytes) -> int:
    """Count as libjpeg reads, up to one too many: thumbnails and trailers are no scans.

    An end before the first scan ends nothing: Pillow reads on where a file of tables ends.
    """
    at = scans = 0
    for _ in range(_MAX_SEGMENTS):
        found = _MARKER.search(data, at)
        if found is None:
            return scans
        at = found.end()
        if found[1] != _END:
            scans += found[1] == _START_OF_SCAN
            # A length counts itself; where it says less, decoders skip no more than that.
            at += max(2, int.from_bytes(data[at : at + 2], "big"))
        if scans > MAX_SCANS or (scans and found[1] == _END):
            return scans
    raise MediaError(f"the JPEG has more than {_MAX_SEGMENTS} segments")
