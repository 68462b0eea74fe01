"""Decoded pixels on a device to patches in host memory: resize, pad, normalise, patchify.

The device is an argument. Every step is integer arithmetic or a look-up, so the result is equal
to the CPU path in every bit, on any device: no library's resize is (torch's differs from Pillow by
a level or two, its float resize by up to 17).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kimi_serve.schemas.vocabulary import ImageDtype
from kimi_serve.schemas.worker import ResizeConfig

from ..images.kimi import ResizePlan
from ..images.normalise import Buffer, normalisation_table, to_bfloat16
from .filters import PRECISION_BITS, Taps, bicubic_taps
from .libraries import Tensor
from .memory import StripPlan


class Pipeline:
    """Writes images of one configuration; planes are uint8 tensors [3, height, width]."""

    def __init__(self, torch: Any, device: str, resize: ResizeConfig, dtype: ImageDtype) -> None:
        self._torch = torch
        self._device = device
        self._patch = resize.patch_size
        self._dtype = {
            "float32": torch.float32,
            "bfloat16": torch.int16,
            "uint8": torch.uint8,
        }[dtype]
        self._table, self._channel_offset = self._make_table(resize, dtype)

    def write(self, planes: Tensor, plan: ResizePlan, strips: StripPlan, out: Buffer) -> None:
        """Fill the start of `out`, a strip of patch rows at a time."""
        torch, patch = self._torch, self._patch
        _, height, width = planes.shape
        across = None if width == plan.new_width else self._taps(width, plan.new_width)
        down = None if height == plan.new_height else self._taps(height, plan.new_height)
        _, rows, columns = plan.grid_thw
        count = plan.num_patches * 3 * patch * patch
        target = torch.frombuffer(out, dtype=self._dtype, count=count)
        target = target.view(rows, columns, 3, patch, patch)
        for row in range(0, rows, strips.rows):
            end = min(rows, row + strips.rows)
            first, last = (min(each * patch, plan.new_height) for each in (row, end))
            canvas = torch.zeros(
                (3, (end - row) * patch, plan.padded_width), dtype=torch.uint8, device=self._device
            )
            if last > first:
                canvas[:, : last - first, : plan.new_width] = _resized(
                    planes, across, down, first, last
                )
            target[row:end].copy_(self._patches(canvas, end - row, columns))

    def _patches(self, canvas: Tensor, rows: int, columns: int) -> Tensor:
        patch = self._patch
        pixels = canvas.view(3, rows, patch, columns, patch).permute(1, 3, 0, 2, 4).contiguous()
        if self._table is None:
            return pixels
        index = pixels.to(self._torch.int32)
        del pixels
        if self._channel_offset is not None:
            index += self._channel_offset
        values = self._table.index_select(0, index.view(-1))
        return values.view(rows, columns, 3, patch, patch)

    def _make_table(self, resize: ResizeConfig, dtype: ImageDtype) -> tuple[Tensor, Tensor]:
        """Give all values of a byte, of each channel where they differ, and where a channel's lie.

        The same table as the CPU path: float arithmetic differs from device to device.
        """
        if dtype == "uint8":
            return None, None
        table = normalisation_table(resize)
        values: Any = to_bfloat16(table).view(np.int16) if dtype == "bfloat16" else table
        torch = self._torch
        if (values == values[0]).all():
            return torch.from_numpy(values[0].copy()).to(self._device), None
        offset = torch.arange(3, dtype=torch.int32, device=self._device) * 256
        return torch.from_numpy(values.ravel()).to(self._device), offset.view(1, 1, 3, 1, 1)

    def _taps(self, size: int, new_size: int) -> _DeviceTaps:
        return _DeviceTaps(self._torch, self._device, bicubic_taps(size, new_size))


class _DeviceTaps:
    """One pass of the filter: taps that are read on the host and used on the device."""

    def __init__(self, torch: Any, device: str, taps: Taps) -> None:
        self.host = taps
        self._torch = torch
        self._index = torch.from_numpy(taps.index).to(device)
        self._weight = torch.from_numpy(taps.weight).to(device)

    def across(self, rows: Tensor) -> Tensor:
        """Filter [3, rows, width] along its lines."""
        return self._sum(rows, 2, self._index, self._weight)

    def down(self, rows: Tensor, first: int, last: int, origin: int) -> Tensor:
        """Give the output lines `first` to `last`; `rows` begin at input line `origin`."""
        index = self._index[:, first:last] - origin
        return self._sum(rows, 1, index, self._weight[:, first:last, None])

    def _sum(self, values: Tensor, axis: int, index: Tensor, weight: Tensor) -> Tensor:
        int32 = self._torch.int32
        total: Tensor = None
        for place, factor in zip(index, weight, strict=True):
            product = values.index_select(axis, place).to(int32)
            product *= factor
            total = product if total is None else total.add_(product)
            del product  # or the next one would be made beside it
        total += 1 << (PRECISION_BITS - 1)
        total >>= PRECISION_BITS
        return total.clamp_(0, 255).to(self._torch.uint8)


def _resized(
    planes: Tensor, across: _DeviceTaps | None, down: _DeviceTaps | None, first: int, last: int
) -> Tensor:
    """Give lines `first` to `last` of the resized picture; the horizontal pass comes first."""
    low, high = (first, last) if down is None else down.host.reach(first, last)
    rows = planes[:, low:high]
    if across is not None:
        rows = across.across(rows)
    return rows if down is None else down.down(rows, first, last, low)
