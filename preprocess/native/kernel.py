"""Typed calls into the extension module, and what stands for it where it was not built."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from kimi_serve.schemas.vocabulary import ImageDtype
from kimi_serve.schemas.worker import ResizeConfig

from ..images.kimi import ResizePlan
from ..images.normalise import Buffer, normalisation_table, to_bfloat16
from ..images.picture import Picture

if TYPE_CHECKING:
    from typing_extensions import CapsuleType

    from . import _kernel

    missing: str | None
    is_damaged: bool
else:
    missing, is_damaged = None, False
    try:
        from . import _kernel
    except ImportError as error:
        is_damaged = (error.path or "").endswith(".so")
        words = f"cannot be loaded: {error}" if is_damaged else "was not built (no C compiler?)"
        missing = f"the native kernel {words}"

# From here on the output would only push everything else out of the caches.
STREAM_FROM = 4 << 20
# The numbers of kernel.h.
_DTYPES: dict[ImageDtype, int] = {"float32": 0, "bfloat16": 1, "uint8": 2}


def supported_levels() -> list[str]:
    """Name the levels that this CPU has, best first; none without the extension module."""
    return [] if missing else _kernel.supported_levels()


def misfit(config: ResizeConfig) -> str | None:
    """Say which parameter of a checkpoint no level takes, None when all are taken.

    Images are smaller than the kernel's limit whatever the others are.
    """
    if config.patch_size <= _kernel.MAX_PATCH:
        return None
    return (
        f"the checkpoint's patch_size is {config.patch_size}, and the native kernel takes at most "
        f"{_kernel.MAX_PATCH}"
    )


def unfilter(
    rows: bytearray, width: int, channels: int, count: int, out: NDArray[np.uint8]
) -> bool:
    """Undo the filters of PNG rows: what `images.png` calls an `Unfilter`."""
    return _kernel.unfilter(rows, width, channels, count, out)


def resize(
    level: str, picture: Picture, new_size: tuple[int, int], *, vertical_first: bool
) -> NDArray[np.uint8]:
    """Resize to RGB [new_height, new_width, 3], in either order of the passes."""
    source, stride, shape = _source(picture)
    out = np.empty((new_size[1], new_size[0], 3), np.uint8)
    _kernel.resize(level, source, stride, shape, new_size, vertical_first, out)
    return out


class NativeWriter:
    """Writes patches of pictures by one level of the kernel; holds nothing but tables.

    Outputs of `stream_from` bytes and more are written past the caches.
    """

    def __init__(
        self, config: ResizeConfig, dtype: ImageDtype, level: str, stream_from: int = STREAM_FROM
    ) -> None:
        self._level = level
        self._stream_from = stream_from
        self._side = config.patch_size
        self._dtype = _DTYPES[dtype]
        self._table = _table(config, dtype)
        # What equals the table where the channels agree; the kernel checks that for every byte.
        self._divisor = 255.0 * config.image_std[0]
        self._offset = config.image_mean[0] / config.image_std[0]

    def write(self, picture: Picture, plan: ResizePlan, out: Buffer) -> None:
        """Fill the start of `out`; the interpreter lock is released meanwhile."""
        source, stride, shape = _source(picture)
        _, rows, columns = plan.grid_thw
        _kernel.patches(
            self._level,
            source,
            stride,
            shape,
            (plan.new_width, plan.new_height),
            False,
            (self._side, columns, rows),
            self._dtype,
            self._table,
            self._divisor,
            self._offset,
            self._stream_from,
            out,
        )


def _table(config: ResizeConfig, dtype: ImageDtype) -> NDArray[Any] | None:
    if dtype == "uint8":
        return None
    table = normalisation_table(config)
    return to_bfloat16(table) if dtype == "bfloat16" else table


def _source(
    picture: Picture,
) -> tuple[NDArray[np.uint8] | CapsuleType, int, tuple[int, int, int]]:
    """Give the memory of a picture, the bytes of a row, and width, height and channels."""
    if isinstance(picture, Image.Image):
        width, height = picture.size
        capsule = _arrow_pixels(picture)
        if capsule is not None:
            return capsule, 4 * width, (width, height, 4)
    pixels = np.ascontiguousarray(picture, np.uint8)
    height, width, channels = pixels.shape
    return pixels, width * channels, (width, height, channels)


def _arrow_pixels(image: Image.Image) -> CapsuleType | None:
    """Give Pillow's own storage, four bytes a pixel, without a copy; None where it is in pieces.

    The capsule keeps the storage alive.
    """
    if image.mode != "RGB":
        return None
    try:
        _, capsule = image.__arrow_c_array__()
    except ValueError:  # several blocks of memory: of PILLOW_BLOCK_SIZE, four bytes a pixel
        return None
    return cast("CapsuleType", capsule)
