"""The data that is packaged beside these modules: which files a folder has.

By `__file__`, as everywhere here: `importlib.resources` takes longer to import than lint has.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

_HERE: Final = Path(__file__).parent


def packaged_files(folder: str, suffix: str) -> tuple[Path, ...]:
    """List the files of a folder that end so, in the order of their names."""
    return tuple(sorted((_HERE / folder).glob(f"*{suffix}")))


def packaged_tables(folder: str) -> Iterator[dict[str, Any]]:
    """Read the TOML files of a folder."""
    for file in packaged_files(folder, ".toml"):
        yield tomllib.loads(file.read_text(encoding="utf-8"))
