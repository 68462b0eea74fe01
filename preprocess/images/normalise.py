"""Pads, patchifies and normalises pixels straight into a caller's buffer, exact to the bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kimi_serve.schemas.vocabulary import ImageDtype
from kimi_serve.schemas.worker import ResizeConfig

from .kimi import ResizePlan

Buffer = memoryview | NDArray[Any]

# bfloat16 has no numpy type: its bits travel as uint16.
NUMPY_DTYPES: dict[ImageDtype, type[np.float32] | type[np.uint16] | type[np.uint8]] = {
    "float32": np.float32,
    "bfloat16": np.uint16,
    "uint8": np.uint8,
}


def normalisation_table(resize: ResizeConfig) -> NDArray[np.float32]:
    """Give float32 [3, 256], every byte of every channel in the checkpoint's own steps.

    The checkpoint divides in float64 and rounds; then each in-place step with a float64 array
    is computed in float64 and rounded again.
    """
    table = np.repeat((np.arange(256) / 255.0).astype(np.float32)[None], 3, axis=0)
    table -= np.array(resize.image_mean, np.float64)[:, None]
    table *= (1.0 / np.array(resize.image_std, np.float64))[:, None]
    return table


def to_bfloat16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Round finite float32 values to the nearest bfloat16, ties to even, as its bits."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


class Normaliser:
    """Writes one image as [num_patches, 3, patch, patch], padding included."""

    def __init__(self, resize: ResizeConfig, dtype: ImageDtype) -> None:
        self._patch = resize.patch_size
        self._dtype = np.dtype(NUMPY_DTYPES[dtype])
        self._write_row = _row_writer(resize, dtype)

    def write(self, pixels: NDArray[np.uint8], plan: ResizePlan, out: Buffer) -> None:
        """Fill the start of `out` from resized pixels [new_height, new_width, 3].

        Works through one row of patches at a time, so all steps of a row stay in the cache.
        """
        patch = self._patch
        _, rows, columns = plan.grid_thw
        count = plan.num_patches * 3 * patch * patch
        target = np.frombuffer(out, self._dtype, count).reshape(rows, columns, 3, patch, patch)
        strip = np.zeros((patch, plan.padded_width, 3), np.uint8)
        patches = strip.reshape(patch, columns, patch, 3).transpose(1, 3, 0, 2)
        for row in range(rows):
            lines = pixels[row * patch : (row + 1) * patch]
            strip[: len(lines), : plan.new_width] = lines
            strip[len(lines) :] = 0
            self._write_row(patches, target[row])


_Row = NDArray[Any]
_RowWriter = Callable[[NDArray[np.uint8], _Row], None]


def _row_writer(resize: ResizeConfig, dtype: ImageDtype) -> _RowWriter:
    """Choose the quickest way that equals the table in every bit."""
    if dtype == "uint8":
        return _copy_row
    table = normalisation_table(resize)
    if dtype == "bfloat16":
        return _Lookup(to_bfloat16(table), resize.patch_size)
    arithmetic = _TwoSteps(resize)
    if arithmetic.equals(table):
        return arithmetic
    return _Lookup(table, resize.patch_size)


def _copy_row(patches: NDArray[np.uint8], out: _Row) -> None:
    np.copyto(out, patches)


class _TwoSteps:
    """v / (255 s) - m / s in float32: exact for the family's mean and std of one half."""

    def __init__(self, resize: ResizeConfig) -> None:
        std = np.array(resize.image_std, np.float64)
        mean = np.array(resize.image_mean, np.float64)
        self._divisor = _per_channel(255.0 * std)
        self._offset = _per_channel(mean / std)

    def __call__(self, patches: NDArray[np.uint8], out: _Row) -> None:
        np.copyto(out, patches)
        np.divide(out, self._divisor, out=out)
        np.subtract(out, self._offset, out=out)

    def equals(self, table: NDArray[np.float32]) -> bool:
        every = np.broadcast_to(np.arange(256, dtype=np.uint8), (1, 3, 1, 256))
        out = np.empty(every.shape, np.float32)
        self(every, out)
        return bool(np.array_equal(out[0, :, 0].view(np.uint32), table.view(np.uint32)))


def _per_channel(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """Give one number when the channels agree (the faster loop), else [3, 1, 1]."""
    single = values.astype(np.float32)
    return single[0] if (single == single[0]).all() else single[:, None, None]


class _Lookup:
    """A table look-up, of two neighbouring pixels at once where a patch holds an even count."""

    def __init__(self, table: NDArray[Any], patch: int) -> None:
        shared = bool((table == table[0]).all())
        table = table[:1] if shared else table
        self._index_dtype: np.dtype[Any] = np.dtype(np.uint8)
        if patch * patch % 2 == 0:
            table, self._index_dtype = _pairs(table), np.dtype(np.uint16)
        self._tables = table

    def __call__(self, patches: NDArray[np.uint8], out: _Row) -> None:
        columns = len(patches)
        index = np.ascontiguousarray(patches).reshape(columns, 3, -1).view(self._index_dtype)
        flat = out.reshape(columns, 3, -1).view(self._tables.dtype)
        if len(self._tables) == 1:
            np.take(self._tables[0], index, out=flat, mode="clip")
            return
        for channel, table in enumerate(self._tables):
            flat[:, channel] = table[index[:, channel]]


def _pairs(table: NDArray[Any]) -> NDArray[Any]:
    """Give [channels, 65536] entries of double width, indexed by two bytes read as one uint16."""
    both = np.arange(65536, dtype=np.uint16).view(np.uint8).reshape(-1, 2)
    pairs = np.ascontiguousarray(table[:, both])
    return pairs.view(np.dtype(f"u{2 * table.itemsize}"))[..., 0]
