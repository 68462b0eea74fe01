"""What an engine decides or reads for some models only: data and its lookup.

The rows live in `engine_limits/*.toml`; each has the source of its knowledge.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from .packaged import packaged_tables
from .versions import VersionRange


@dataclass(frozen=True, slots=True)
class VariableReaders:
    """A variable that only the image processors of some architectures read."""

    versions: VersionRange
    name: str
    architectures: tuple[str, ...]
    source: str


@dataclass(frozen=True, slots=True)
class StaticFraction:
    """The largest share of GPU memory that an engine takes by itself; no architectures: any."""

    versions: VersionRange
    architectures: tuple[str, ...]
    highest: float
    source: str


@dataclass(frozen=True, slots=True)
class VisionTower:
    """What an engine's own share depends on for some architectures: the size of the encoder."""

    versions: VersionRange
    architectures: tuple[str, ...]
    layers: int
    width: int
    source: str


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """All rows of all engines."""

    reads: tuple[VariableReaders, ...]
    fractions: tuple[StaticFraction, ...]
    towers: tuple[VisionTower, ...] = ()

    def tower(self, engine: str, version: str, architectures: Iterable[str]) -> VisionTower | None:
        """Give the encoder by which the engine computes its share; None where nobody checked."""
        names = set(architectures)
        for row in self.towers:
            if row.versions.covers(engine, version) and not names.isdisjoint(row.architectures):
                return row
        return None

    def readers(self, engine: str, version: str, name: str) -> VariableReaders | None:
        """Give who reads a variable, None where every model may."""
        for row in self.reads:
            if row.name == name and row.versions.covers(engine, version):
                return row
        return None

    def fraction(
        self, engine: str, version: str, architectures: Iterable[str]
    ) -> StaticFraction | None:
        """Give the row of the first architecture that has one, else that of all models."""
        rows = [row for row in self.fractions if row.versions.covers(engine, version)]
        for architecture in architectures:
            for row in rows:
                if architecture in row.architectures:
                    return row
        return next((row for row in rows if not row.architectures), None)


@cache
def load_limits() -> EngineLimits:
    """Read the packaged rows."""
    reads: list[VariableReaders] = []
    fractions: list[StaticFraction] = []
    towers: list[VisionTower] = []
    for data in packaged_tables("engine_limits"):
        for row in data.get("reads", ()):
            versions = _versions(data["engine"], row)
            names = tuple(row["architectures"])
            reads.append(VariableReaders(versions, row["name"], names, row["source"]))
        for row in data.get("static_fraction", ()):
            versions = _versions(data["engine"], row)
            names = tuple(row["architectures"])
            fractions.append(StaticFraction(versions, names, row["highest"], row["source"]))
        for row in data.get("vision_tower", ()):
            versions = _versions(data["engine"], row)
            names = tuple(row["architectures"])
            sizes = row["layers"], row["width"]
            towers.append(VisionTower(versions, names, *sizes, row["source"]))
    return EngineLimits(tuple(reads), tuple(fractions), tuple(towers))


def _versions(engine: str, row: dict[str, Any]) -> VersionRange:
    return VersionRange(engine, row["since"], row.get("until", ""))
