"""What a maintainer knows beside the package, checked against the package."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .package import ReadingError
from .rows import LEAVE_OUT, Row

FILE = Path(__file__).with_name("curated.toml")


class Curated:
    """The hand-kept part of one engine's table."""

    def __init__(self, engine: str) -> None:
        data: dict[str, Any] = tomllib.loads(FILE.read_text(encoding="utf-8"))
        self._deprecated: dict[str, str] = {
            row["name"]: row["instead"] for row in data["deprecated"] if row["engine"] == engine
        }
        self._removed: dict[str, str] = data["removed"].get(engine, {})
        self._since: dict[str, str] = data["since"].get(engine, {})
        self.compiled: list[Row] = [
            {"name": name, "kind": "str"} for name in data["compiled"].get(engine, [])
        ]

    def mark_deprecated(self, rows: Iterable[Row], name: str, mark: str) -> None:
        """Set `mark` of each row whose `name` is in the hand-kept list."""
        for row in rows:
            instead = self._deprecated.get(str(row[name]))
            if instead is not None:
                row[mark] = instead or LEAVE_OUT

    def removed(self, existing: set[str]) -> list[Row]:
        """Give the removed names, after checking all hand-kept names against the existing ones."""
        wrong = [f"{name} is not in the package" for name in self._deprecated.keys() - existing]
        wrong += [f"{name} is still in the package" for name in self._removed.keys() & existing]
        wrong += [
            f"{word}, to be written for {name}, is not in the package"
            for name, instead in {**self._deprecated, **self._removed}.items()
            for word in re.findall(r"--[\w-]+|\b[A-Z]+_[A-Z_]+\b", instead)
            if word not in existing
        ]
        if wrong:
            message = f"{FILE.name} is out of date: {'; '.join(sorted(wrong))}"
            raise ReadingError(message)
        return [
            {"name": name, "since": self._since.get(name, ""), "instead": instead or LEAVE_OUT}
            for name, instead in sorted(self._removed.items())
        ]
