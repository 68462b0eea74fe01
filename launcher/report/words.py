"""How values and tables look as text."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kimi_serve.schemas.hardware import Hardware

# Letters, digits and signs of paths and names; a text that reads as another type is quoted.
_BARE = re.compile(r"(?!(?:true|false|null)$)(?![-+.\d])[\w./:@~-]+", re.ASCII)
_WIDEST = 40


def show(value: Any) -> str:
    """Write a value as in a profile: JSON, with plain words bare."""
    if isinstance(value, str) and (_BARE.fullmatch(value) or value == "***"):
        return value
    return json.dumps(value, ensure_ascii=True)


def gpu_rows(hardware: Hardware) -> list[tuple[str, str]]:
    """Give the number of GPUs and how they were found, then each."""
    rows = [("gpus", f"{len(hardware.gpus)} ({hardware.gpu_source})")]
    for gpu in hardware.gpus:
        memory = "memory unknown" if gpu.total_mib is None else f"{gpu.total_mib} MiB"
        rows.append((f"gpu {gpu.index}", ", ".join(filter(None, (gpu.name, gpu.uuid, memory)))))
    return rows


def columns(rows: Sequence[tuple[str, ...]], *, indent: str = "  ") -> list[str]:
    """Align rows of the same length; a cell wider than 40 pushes its own row only."""
    if not rows:
        return []
    widths = [
        max((len(cell) for cell in column if len(cell) <= _WIDEST), default=0)
        for column in zip(*rows, strict=True)
    ]
    return [
        indent
        + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
