"""Which engine can move decode and preprocess to the CPU, for which model: data and its lookup.

The rows live in `support_rows/*.toml`; each has the source of its knowledge.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from .packaged import packaged_tables
from .versions import VersionRange
from .vocabulary import EngineKind

if TYPE_CHECKING:
    from .worker import Device

FlagEffect = Literal["honoured", "ignored", "needless"]


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

    @property
    def versions(self) -> VersionRange:
        return VersionRange(self.engine, self.since, self.until)


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
                if architecture in row.architectures and row.versions.covers(engine, version):
                    return row
        return None

    def built_in(self) -> tuple[str, ...]:
        """List the architectures that the built-in workers serve."""
        return tuple(
            name for row in self.rows if row.engine == "none" for name in row.architectures
        )

    def is_known(self, engine: EngineKind, version: str) -> bool:
        """Say whether any row covers this version of the engine."""
        return any(row.versions.covers(engine, version) for row in self.rows)

    def honouring(self, engine: EngineKind, version: str) -> tuple[str, ...]:
        """List the architectures for which this engine honours the flag."""
        return tuple(
            architecture
            for row in self.rows
            if row.flag == "honoured" and row.versions.covers(engine, version)
            for architecture in row.architectures
        )


@cache
def load_support() -> SupportTable:
    """Read the packaged table."""
    rows: list[SupportRow] = []
    newest: dict[str, str] = {}
    for data in packaged_tables("support_rows"):
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
