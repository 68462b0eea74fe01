"""How values and tables look as text."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

# Letters, digits and signs of paths and names; a text that reads as another type is quoted.
_BARE = re.compile(r"(?!(?:true|false|null)$)(?![-+.\d])[\w./:@~-]+", re.ASCII)
_WIDEST = 40


def show(value: Any) -> str:
    """Write a value as in a profile: JSON, with plain words bare."""
    if isinstance(value, str) and (_BARE.fullmatch(value) or value == "***"):
        return value
    return json.dumps(value, ensure_ascii=True)


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
