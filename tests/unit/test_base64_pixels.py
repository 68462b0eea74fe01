"""Base64 is written over the bytes that it is made of, and none is lost."""

from __future__ import annotations

import base64
import random

import pytest

from kimi_serve.preprocess.workers.base64_pixels import write_base64

PIECE = 3 << 15


@pytest.mark.parametrize(
    "size",
    [0, 1, 2, 3, 4, 588, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE, 2 * PIECE + 2, 5 * PIECE + 588],
)
def test_text_in_the_place_of_its_bytes(size: int) -> None:
    data = random.Random(size).randbytes(size)
    expected = base64.b64encode(data)
    slot = memoryview(bytearray(len(expected)))
    raw = slot[len(slot) - 3 * len(slot) // 4 :]
    raw[:size] = data
    assert write_base64(raw[:size], slot) == len(expected)
    assert bytes(slot) == expected


def test_in_a_slot_that_is_larger_than_needed() -> None:
    data = random.Random(1).randbytes(PIECE + 7)
    slot = memoryview(bytearray(4 * PIECE))
    raw = slot[PIECE:]
    raw[: len(data)] = data
    length = write_base64(raw[: len(data)], slot)
    assert base64.b64decode(slot[:length], validate=True) == data


def test_into_another_place() -> None:
    data = random.Random(2).randbytes(2 * PIECE + 1)
    out = memoryview(bytearray(4 * len(data) // 3 + 4))
    length = write_base64(memoryview(data), out)
    assert bytes(out[:length]) == base64.b64encode(data)


def test_a_slot_that_is_too_small_is_not_written_past() -> None:
    with pytest.raises(ValueError, match="structure"):
        write_base64(memoryview(b"x" * 9), memoryview(bytearray(11)))
