"""The extension module; every size is checked, ValueError says what does not fit."""

from typing import Any

from numpy.typing import NDArray
from typing_extensions import CapsuleType

# numpy says that its arrays are buffers only from Python 3.12 on.
Buffer = bytes | bytearray | memoryview | NDArray[Any]

MAX_PATCH: int

def supported_levels() -> list[str]: ...
def unfilter(
    rows: bytearray, width: int, channels: int, count: int, out: NDArray[Any], /
) -> bool: ...
def resize(
    level: str,
    source: Buffer | CapsuleType,
    stride: int,
    shape: tuple[int, int, int],
    new_size: tuple[int, int],
    vertical_first: bool,
    out: Buffer,
    /,
) -> None: ...
def patches(
    level: str,
    source: Buffer | CapsuleType,
    stride: int,
    shape: tuple[int, int, int],
    new_size: tuple[int, int],
    vertical_first: bool,
    grid: tuple[int, int, int],
    dtype: int,
    table: Buffer | None,
    divisor: float,
    offset: float,
    stream_from: int,
    out: Buffer,
    /,
) -> None: ...
