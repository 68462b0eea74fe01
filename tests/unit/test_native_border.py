"""What does not fit is refused at the kernel's border, whatever the numbers are."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from native_levels import LEVELS, needs_kernel
from PIL import Image

from kimi_serve.preprocess.native import kernel

pytestmark = needs_kernel
# Through Any: these calls are wrong on purpose.
_kernel: Any = getattr(kernel, "_kernel", None)

PIXELS = np.arange(8 * 6 * 3, dtype=np.uint8).reshape(6, 8, 3)
TABLE = np.zeros((3, 256), np.float32)
BIG = 2**20


def _arguments(**changes: Any) -> tuple[Any, ...]:
    """Give arguments of `patches` that fit: 8x6 pixels, halved, in 2x2 patches of 4."""
    values: dict[str, Any] = {
        "level": LEVELS[0] if LEVELS else "",
        "source": PIXELS,
        "stride": 24,
        "shape": (8, 6, 3),
        "new_size": (4, 3),
        "vertical_first": False,
        "grid": (4, 2, 2),
        "dtype": 0,
        "table": TABLE,
        "divisor": 127.5,
        "offset": 1.0,
        "stream_from": 1 << 22,
        "out": bytearray(4 * 4 * 48),
    }
    return tuple((values | changes).values())


def test_what_fits_is_taken() -> None:
    _kernel.patches(*_arguments())
    _kernel.patches(*_arguments(dtype=2, table=None, out=bytearray(4 * 48)))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"level": "sse9"}, "no level 'sse9'"),
        ({"source": bytes(6 * 24 - 1)}, "the source needs 144 bytes; it has 143"),
        ({"stride": 23}, "a stride of 23 bytes does not fit rows of 24"),
        ({"stride": 25}, "the source needs 149 bytes"),
        ({"stride": -24}, "stride is -24"),
        ({"stride": 2**63 - 1}, "a stride of 9223372036854775807 bytes"),
        ({"stride": 2**43}, "a stride of 8796093022208 bytes"),
        ({"shape": (0, 6, 3)}, "width is 0"),
        ({"shape": (8, -6, 3)}, "height is -6"),
        ({"shape": (8, 6, 1)}, "channels is 1"),
        ({"shape": (BIG + 1, 6, 3)}, "width is 1048577"),
        ({"shape": (8, BIG, 3)}, "the source needs 25165824 bytes"),
        ({"new_size": (0, 3)}, "new_width is 0"),
        ({"new_size": (9, 3)}, "the padded width is 8; it must be from 9"),
        ({"new_size": (4, 9)}, "the padded height is 8; it must be from 9"),
        ({"grid": (0, 2, 2)}, "side is 0"),
        ({"grid": (257, 2, 2)}, "side is 257"),
        ({"grid": (4, 0, 2)}, "columns is 0"),
        ({"grid": (4, 2, 2**18 + 1)}, "rows is 262145"),
        ({"grid": (4, 2, 2**18)}, "the output buffer needs 100663296 bytes; it has 768"),
        ({"dtype": 3}, "dtype is 3"),
        ({"table": TABLE[:2]}, "the table needs 3072 bytes; it has 2048"),
        ({"table": TABLE.astype(np.float64)}, "the table needs 3072 bytes; it has 6144"),
        ({"dtype": 1}, "the table needs 1536 bytes; it has 3072"),
        ({"divisor": 0.0}, "divisor not 0"),
        ({"divisor": float("nan")}, "finite"),
        ({"offset": float("inf")}, "finite"),
        ({"stream_from": -1}, "stream_from is -1"),
        ({"out": bytearray(767)}, "the output buffer needs 768 bytes; it has 767"),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        _kernel.patches(*_arguments(**changes))


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"out": bytes(768)}, BufferError),
        ({"out": None}, TypeError),
        ({"source": None}, TypeError),
        ({"source": "text"}, TypeError),
        ({"source": PIXELS[:, ::2]}, (BufferError, ValueError)),
        ({"table": None}, TypeError),
        ({"shape": (8, 6)}, TypeError),
        ({"shape": (8, 6, 2**40)}, OverflowError),
        ({"grid": (4, 2, 2**31)}, OverflowError),
        ({"level": "a\0b"}, ValueError),
    ],
)
def test_what_is_no_argument_is_refused(
    changes: dict[str, Any], error: type[Exception] | tuple[type[Exception], ...]
) -> None:
    with pytest.raises(error):
        _kernel.patches(*_arguments(**changes))


def test_the_count_of_arguments_is_checked() -> None:
    with pytest.raises(TypeError):
        _kernel.patches(*_arguments()[:-1])
    with pytest.raises(TypeError):
        _kernel.resize(LEVELS[0], PIXELS)


def test_only_capsules_of_pixels_are_taken() -> None:
    schema, rgb = Image.new("RGB", (8, 6)).__arrow_c_array__()
    _, grey = Image.new("L", (8, 6)).__arrow_c_array__()
    shape = {"shape": (8, 6, 4), "stride": 32}
    _kernel.patches(*_arguments(source=rgb, **shape))
    for capsule in (grey, schema):
        with pytest.raises(ValueError, match=r"incorrect name|Arrow array"):
            _kernel.patches(*_arguments(source=capsule, **shape))
    with pytest.raises(ValueError, match="the source needs 224 bytes; it has 192"):
        _kernel.patches(*_arguments(source=rgb, shape=(8, 7, 4), stride=32))


@pytest.mark.parametrize(("begin", "fits"), [(0, False), (143, False), (144, True)])
def test_an_output_in_its_source_is_refused(begin: int, fits: bool) -> None:
    memory = np.zeros(1000, np.uint8)
    patches = _arguments(source=memory[:144], out=memory[begin : begin + 768])
    resize = (LEVELS[0], memory[:144], 24, (8, 6, 3), (4, 3), False, memory[begin : begin + 36])
    for call, arguments in ((_kernel.patches, patches), (_kernel.resize, resize)):
        if fits:
            call(*arguments)
        else:
            with pytest.raises(ValueError, match="the output lies in the source"):
                call(*arguments)


def test_buffers_are_given_back() -> None:
    source, out = bytearray(PIXELS.tobytes()), bytearray(768)
    for change in ({}, {"table": TABLE[:1]}, {"stride": 1}):
        arguments = _arguments(source=source, out=out, **change)
        if change:
            with pytest.raises(ValueError, match=r"fit|needs"):
                _kernel.patches(*arguments)
        else:
            _kernel.patches(*arguments)
        source.append(0)  # BufferError while somebody holds it
        out.append(0)


NUMBERS = st.one_of(
    st.integers(-2, 40), st.sampled_from([BIG - 1, BIG, BIG + 1, 2**31 - 1, -(2**31), 2**18])
)
LENGTHS = st.one_of(st.integers(0, 4000), st.integers(0, 200000))


@settings(max_examples=500)
@given(
    shape=st.tuples(NUMBERS, NUMBERS, st.integers(2, 5)),
    stride=st.one_of(st.integers(-5, 200), st.sampled_from([2**31, 2**43, 2**62])),
    new_size=st.tuples(NUMBERS, NUMBERS),
    grid=st.tuples(st.one_of(st.integers(0, 20), st.sampled_from([256, 257])), NUMBERS, NUMBERS),
    dtype=st.integers(-1, 3),
    lengths=st.tuples(LENGTHS, st.sampled_from([0, 767, 768, 1536, 3072, 3073]), LENGTHS),
    vertical_first=st.booleans(),
    level=st.sampled_from(LEVELS or [""]),
    stream_from=st.sampled_from([0, 1000, 1 << 22]),
)
def test_any_numbers_are_taken_or_refused(
    shape: tuple[int, int, int],
    stride: int,
    new_size: tuple[int, int],
    grid: tuple[int, int, int],
    dtype: int,
    lengths: tuple[int, int, int],
    vertical_first: bool,
    level: str,
    stream_from: int,
) -> None:
    source, table, out = (bytearray(length) for length in lengths)
    try:
        _kernel.patches(
            level, source, stride, shape, new_size, vertical_first, grid, dtype, table, 127.5, 1.0,
            stream_from, out,
        )  # fmt: skip
    except (ValueError, MemoryError):
        assert not any(out)
    with contextlib.suppress(ValueError, MemoryError):
        _kernel.resize(level, source, stride, shape, new_size, vertical_first, out)
