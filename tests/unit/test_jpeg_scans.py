"""Scans are counted as the decoder reads them: what stands behind a picture, or inside a segment,
is none, and nothing hides one.
"""

from __future__ import annotations

import itertools
import random
import re
from io import BytesIO

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from image_samples import DISPLAY, encoded, picture
from PIL import Image

from kimi_serve.preprocess.images import jpeg_scans
from kimi_serve.preprocess.images.decode import decode_image, inspect_jpeg
from kimi_serve.preprocess.images.jpeg_scans import MAX_SCANS, require_few_scans
from kimi_serve.schemas.errors import MediaError

SCAN, END = b"\xff\xda", b"\xff\xd9"
NOISE = Image.frombytes("RGB", (24, 16), random.Random(5).randbytes(24 * 16 * 3))
PROGRESSIVE = encoded(NOISE, "JPEG", progressive=True, quality=95)
MANY = SCAN * (MAX_SCANS + 1)


def count(data: bytes) -> int:
    return jpeg_scans._count_scans(data)  # pyright: ignore[reportPrivateUsage]


def segment(body: bytes, marker: bytes = b"\xff\xfe") -> bytes:
    return marker + (2 + len(body)).to_bytes(2, "big") + body


def scans_of(data: bytes) -> tuple[bytes, list[bytes]]:
    """Cut a file of Pillow's before every scan, with the table that stands before it."""
    marks = [found.start() for found in re.finditer(SCAN, data)]
    cuts = marks[:1]
    for before, mark in itertools.pairwise(marks):
        table = data.find(b"\xff\xc4", before, mark)
        cuts.append(mark if table == -1 else table)
    scans = [data[a:b] for a, b in itertools.pairwise([*cuts, len(data) - 2])]
    return data[: cuts[0]], scans


def decoded(data: bytes) -> bytes | None:
    """Give what Pillow makes of it, None for an error."""
    try:
        with Image.open(BytesIO(data)) as image:
            return image.convert("RGB").tobytes()
    except (OSError, SyntaxError):
        return None


HEAD, SCANS = scans_of(PROGRESSIVE)
AFTER = [decoded(HEAD + b"".join(SCANS[:number]) + END) for number in range(1 + len(SCANS))]


def test_every_scan_of_the_sample_changes_its_pixels() -> None:
    assert len(SCANS) == count(PROGRESSIVE) == 10
    assert len(set(AFTER[1:])) == len(SCANS)


_JUNK = st.sampled_from(
    [
        segment(b"FF DA inside: " + SCAN + b"\0\x08" + SCAN),
        segment(END + SCAN),
        segment(PROGRESSIVE, b"\xff\xe1"),
        segment(b"", b"\xff\xe0"),
        b"\xff\xfe\0\0",  # lengths that do not even count themselves
        b"\xff\xe5\0\1",
        b"\xff\xff\xff\xff" + segment(b"fill bytes"),
        b"garbage \x00\xff\x00\xff\x00",
        b"\xff\xd3\xff\x01",  # stand alone
        b"\xff\x02",  # reserved
        b"\xff\xfe\x00\x40",  # swallows what follows
        b"\xff\xfe\xff\xff",
        END,
        END + b"\xff\xd8",
        b"\xff\xd8",
    ]
)


@given(st.dictionaries(st.integers(-1, len(SCANS)), _JUNK, max_size=3), st.binary(max_size=40))
def test_nothing_hides_a_scan_that_the_decoder_reads(junk: dict[int, bytes], behind: bytes) -> None:
    """The pixels tell how many scans the decoder has read, as each of them changes them."""
    body = b"".join(junk.get(at, b"") + scan for at, scan in enumerate(SCANS))
    data = HEAD[:2] + junk.get(-1, b"") + HEAD[2:] + body + junk.get(len(SCANS), b"") + END + behind
    pixels = decoded(data)
    if pixels is not None and pixels in AFTER[1:]:
        assert count(data) >= AFTER.index(pixels)


@pytest.mark.parametrize("between", [0, 1, 5, 10])
@pytest.mark.parametrize("junk", [b"", segment(SCAN * 9), b"\xff\xfe\0\0", b"\xff\xd0 "])
def test_the_count_is_exact_where_pillow_decodes(between: int, junk: bytes) -> None:
    parts = [*SCANS[:between], junk, *SCANS[between:]]
    data = HEAD + b"".join(parts) + END + MANY
    assert decoded(data) == AFTER[-1]
    assert count(data) == 10


def test_a_file_of_tables_in_front_hides_nothing() -> None:
    """Pillow reads on behind an end before which nothing was scanned."""
    tables = b"\xff\xd8" + HEAD[HEAD.index(b"\xff\xdb") : HEAD.index(b"\xff\xc2")] + END
    data = tables + PROGRESSIVE
    assert decoded(data) == AFTER[-1]
    assert count(data) == 10
    bomb = tables + HEAD + b"".join(SCANS) + SCANS[-1] * MAX_SCANS + END
    with pytest.raises(MediaError, match="more than 100 scans"):
        decode_image(bomb, DISPLAY)


@pytest.mark.parametrize("trailer", [MANY, random.Random(3).randbytes(16 << 20)])
@pytest.mark.parametrize("progressive", [False, True])
def test_what_stands_behind_a_picture_is_no_scan(progressive: bool, trailer: bytes) -> None:
    """Motion photos carry a whole MP4 there."""
    data = encoded(picture(), "JPEG", progressive=progressive)
    expected = decode_image(data, DISPLAY).pixels
    assert (data + trailer).count(SCAN) > MAX_SCANS
    assert np.array_equal(decode_image(data + trailer, DISPLAY).pixels, expected)
    assert inspect_jpeg(data + trailer + END, DISPLAY) is None


def test_thumbnails_and_comments_are_no_scans() -> None:
    data = encoded(picture(), "JPEG")
    data = data[:2] + segment(b"Exif\0\0" + MANY, b"\xff\xe1") + segment(MANY) + data[2:]
    assert decode_image(data, DISPLAY).size == (40, 30)


def test_segments_without_end_are_refused() -> None:
    data = b"\xff\xd8" + b"\xff\xfe\0\2" * (1 << 16) + MANY
    with pytest.raises(MediaError, match="more than 65536 segments"):
        require_few_scans(data)


@given(st.binary(max_size=200))
def test_any_bytes_are_counted(data: bytes) -> None:
    assert count(b"\xff\xd8" + data) <= (b"\xff\xd8" + data).count(SCAN)
