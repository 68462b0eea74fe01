"""Which engine can move decode and preprocess to the CPU, for which model: data and its lookup.

The rows live in `support_rows/*.toml`; each has the source of its knowledge.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from .vocabulary import EngineKind

if TYPE_CHECKING:
    from .worker import Device

FlagEffect = Literal["honoured", "ignored", "needless"]
_FOLDER: Final = Path(__file__).parent / "support_rows"


@dataclass(frozen=True, slots=True)
class SupportRow:
    """One model family under one range of versions of one engine.

    `decode` and `preprocess` are the devices that the engine uses by itself when a CUDA device is
    visible. `flag` says what forcing the CPU does: honoured, ignored, or needless because the
    work is on the CPU already. `force_decode` and `force_preprocess` are what a user can do
    instead ("" where nothing helps). `since` is inclusive, `until` exclusive, "" is open.
    """

    engine: EngineKind
    since: str
    until: str
    family: str
    architectures: tuple[str, ...]
    decode: Device
    preprocess: Device
    flag: FlagEffect
    force_decode: str
    force_preprocess: str
    source: str


@dataclass(frozen=True, slots=True)
class SupportTable:
    """All rows, and the newest version of each engine that they were checked against.

    The built-in workers have no versions: their rows are open at both ends.
    """

    rows: tuple[SupportRow, ...]
    newest: dict[str, str]

    def find(
        self, engine: EngineKind, version: str, architectures: Iterable[str]
    ) -> SupportRow | None:
        """Give the row of the first architecture that the table knows, None if it knows none."""
        for architecture in architectures:
            for row in self.rows:
                if (
                    row.engine == engine
                    and architecture in row.architectures
                    and _is_in_range(version, row.since, row.until)
                ):
                    return row
        return None

    def built_in(self) -> tuple[str, ...]:
        """List the architectures that the built-in workers serve."""
        return tuple(
            name for row in self.rows if row.engine == "none" for name in row.architectures
        )

    def is_known(self, engine: EngineKind, version: str) -> bool:
        """Say whether any row covers this version of the engine."""
        return any(
            row.engine == engine and _is_in_range(version, row.since, row.until)
            for row in self.rows
        )

    def honouring(self, engine: EngineKind, version: str) -> tuple[str, ...]:
        """List the architectures for which this engine honours the flag."""
        return tuple(
            architecture
            for row in self.rows
            if row.engine == engine
            and row.flag == "honoured"
            and _is_in_range(version, row.since, row.until)
            for architecture in row.architectures
        )


def version_key(version: str) -> tuple[int, ...]:
    """Order dotted versions by their leading numbers: "0.5.23rc1" sorts as (0, 5, 23)."""
    numbers: list[int] = []
    for part in version.split("."):
        digits = "".join(_leading_digits(part))
        if not digits:
            break
        numbers.append(int(digits))
    return tuple(numbers)


def _leading_digits(part: str) -> Iterable[str]:
    for character in part:
        if not ("0" <= character <= "9"):
            return
        yield character


def _is_in_range(version: str, since: str, until: str) -> bool:
    key = version_key(version)
    return (not since or key >= version_key(since)) and (not until or key < version_key(until))


@cache
def load_support() -> SupportTable:
    """Read the packaged table."""
    rows: list[SupportRow] = []
    newest: dict[str, str] = {}
    for file in sorted(_FOLDER.glob("*.toml")):
        data = tomllib.loads(file.read_text(encoding="utf-8"))
        if "newest" in data:
            newest[data["engine"]] = data["newest"]
        rows += [_row(data["engine"], entry) for entry in data["row"]]
    return SupportTable(tuple(rows), newest)


def _row(engine: EngineKind, entry: dict[str, Any]) -> SupportRow:
    names: Sequence[str] = [field.name for field in fields(SupportRow)]
    values: dict[str, Any] = {name: entry.get(name, "") for name in names}
    values["engine"] = engine
    values["architectures"] = tuple(entry["architectures"])
    return SupportRow(**values)
