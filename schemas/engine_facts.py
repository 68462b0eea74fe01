"""What a checked release of an engine takes on its command line and in its environment.

The tables lie in `engine_tables/`, one file a release, written by `scripts/engine_tables.py` from
the engine's own package. Nothing here imports an engine.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from .engine_booleans import BooleanOutcome, read_boolean
from .packaged import packaged_files
from .versions import version_key

__all__ = [
    "BooleanOutcome",
    "EngineTable",
    "EnvFacts",
    "FlagFacts",
    "RemovedFacts",
    "checked_versions",
    "engine_table",
    "engines",
    "read_boolean",
]

if TYPE_CHECKING:
    from pathlib import Path

FlagAction = Literal["store", "store_true", "boolean", "append"]
_SWITCHES = ("store_true", "boolean")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FlagFacts:
    """One flag. `deprecated` says what to write instead, "" where the flag is no old name.

    `default` is None also where it is decided when the engine runs. `choices` is None where
    anything of the type is taken, or where they are not known.
    """

    flag: str
    field: str
    type: str
    action: FlagAction
    aliases: tuple[str, ...] = ()
    negatives: tuple[str, ...] = ()
    nargs: str | int | None = None
    choices: tuple[str | int, ...] | None = None
    default: Any = None
    required: bool = False
    deprecated: str = ""

    @property
    def spellings(self) -> tuple[str, ...]:
        """Every way to write it in full, the negatives of a switch among them."""
        return (self.flag, *self.aliases, *self.negatives)

    @property
    def is_switch(self) -> bool:
        return self.action in _SWITCHES

    @property
    def least(self) -> int:
        """How many values must follow."""
        if self.is_switch or self.nargs in ("?", "*"):
            return 0
        return self.nargs if isinstance(self.nargs, int) else 1

    @property
    def most(self) -> int | None:
        """How many values may follow, None for any number."""
        if self.is_switch:
            return 0
        return None if self.nargs in ("+", "*") else self.nargs if type(self.nargs) is int else 1


@dataclass(frozen=True, slots=True)
class EnvFacts:
    """One variable. `kind` is one of `read_boolean`, or int, float, list, json, str or choice.

    `also` are other boolean parsers that read the same name elsewhere in the engine.
    `declared` is false for names that the engine reads past its own registry.
    """

    name: str
    kind: str
    also: tuple[str, ...] = ()
    default: Any = None
    choices: tuple[str, ...] | None = None
    secret: bool = False
    deprecated_by: str = ""
    declared: bool = True

    @property
    def is_boolean(self) -> bool:
        return self.kind not in ("int", "float", "list", "json", "str", "choice")


@dataclass(frozen=True, slots=True)
class RemovedFacts:
    """A flag or a variable of older releases. `since` is "" where the release is not known."""

    name: str
    since: str
    instead: str


@dataclass(frozen=True, slots=True)
class EngineTable:
    """One release. `by_spelling` has every flag under each of its full spellings."""

    engine: str
    version: str
    abbreviations: bool
    underscores: bool
    dotted: bool
    prefixes: tuple[str, ...]
    renamed_prefixes: Mapping[str, str]
    by_spelling: Mapping[str, FlagFacts]
    by_field: Mapping[str, FlagFacts]
    environment: Mapping[str, EnvFacts]
    gone: Mapping[str, RemovedFacts]

    def matches(self, name: str) -> tuple[str, ...]:
        """Give the full spellings that the engine's parser takes `name` for.

        None for an unknown flag, one for a flag or an abbreviation that only one flag has, more
        for an abbreviation that the engine refuses as ambiguous.
        """
        name = self.spelt(name)
        if name in self.by_spelling:
            return (name,)
        if not (self.abbreviations and len(name) > 2 and name.startswith("--")):
            return ()
        if isinstance(self.by_spelling, _Facts):
            return self.by_spelling.beginning(name)
        return tuple(sorted(full for full in self.by_spelling if full.startswith(name)))

    def flag(self, name: str) -> FlagFacts | None:
        """Find a flag by any spelling that the engine takes, None if it is unknown or ambiguous."""
        found = self.matches(name)
        return self.by_spelling[found[0]] if len(found) == 1 else None

    def spelt(self, name: str) -> str:
        """Write a flag as the engine's parser compares it: vLLM takes `_` for `-`."""
        if self.underscores and name.startswith("--"):
            return f"--{name[2:].replace('_', '-')}"
        return name

    def env(self, name: str) -> EnvFacts | None:
        """Find a variable, also by a prefix that the engine rewrites at its start."""
        found = self.environment.get(name)
        if found is not None:
            return found
        for old, new in self.renamed_prefixes.items():
            twin = self.environment.get(new + name.removeprefix(old))
            if name.startswith(old) and twin is not None:
                return replace(twin, name=name, deprecated_by=twin.name)
        return None

    def owns(self, name: str) -> bool:
        """Tell whether a variable has the engine's prefix."""
        return name.startswith(self.prefixes)

    def removed(self, name: str) -> RemovedFacts | None:
        """Find a flag or a variable among those that older releases had."""
        return self.gone.get(self.spelt(name))


def engine_table(engine: str, version: str = "") -> EngineTable | None:
    """Give the table for a release: its own, or that of the newest checked one before it.

    Without a version: the newest. None for an engine without tables, and for a release older
    than every checked one.
    """
    for checked in reversed(checked_versions(engine)):
        if not version or version_key(checked) <= version_key(version):
            return _load(engine, checked)
    return None


@cache
def engines() -> tuple[str, ...]:
    """Name the engines that have a table."""
    return tuple(sorted({engine for engine, _ in _files()}))


@cache
def checked_versions(engine: str) -> tuple[str, ...]:
    """List the releases of an engine that have a table, oldest first."""
    return tuple(sorted((v for e, v in _files() if e == engine), key=version_key))


@cache
def _files() -> Mapping[tuple[str, str], Path]:
    """Give the tables by engine and release."""
    files: dict[tuple[str, str], Path] = {}
    for file in packaged_files("engine_tables", ".json"):
        engine, _, version = file.name.removesuffix(".json").partition("-")
        files[engine, version] = file
    return files


@cache
def _load(engine: str, version: str) -> EngineTable:
    data: dict[str, Any] = json.loads(_files()[engine, version].read_bytes())
    flags: list[dict[str, Any]] = data["flags"]
    # Of two flags for a field, the one to write today is later here, and so the one that counts.
    current = sorted(flags, key=lambda row: not row.get("deprecated"))
    make_flag = _made_once(lambda row: FlagFacts(**_tuples(row)))
    variables = {row["name"]: row for row in data["environment"]}
    variables |= {row["name"]: {**row, "declared": False} for row in data["undeclared_environment"]}
    return EngineTable(
        engine=data["engine"],
        version=data["version"],
        **data["spelling"],
        prefixes=tuple(data["prefixes"]),
        renamed_prefixes=data["renamed_prefixes"],
        by_spelling=_Facts(
            {spelling: row for row in flags for spelling in _spellings(row)}, make_flag
        ),
        by_field=_Facts({row["field"]: row for row in current}, make_flag),
        environment=_Facts(variables, _made_once(lambda row: EnvFacts(**_tuples(row)))),
        gone={row["name"]: RemovedFacts(**row) for row in data["removed"]},
    )


class _Facts(Mapping[str, T]):
    """Rows by name, made into facts when they are asked for: a run looks at few of a thousand."""

    def __init__(
        self, rows: Mapping[str, dict[str, Any]], make: Callable[[dict[str, Any]], T]
    ) -> None:
        self._rows = rows
        self._make = make
        self._sorted: list[str] = []

    def __getitem__(self, name: str) -> T:
        return self._make(self._rows[name])

    def beginning(self, start: str) -> tuple[str, ...]:
        """Give the names that begin so, in order; thousands are asked for in a run."""
        self._sorted = self._sorted or sorted(self._rows)
        first = last = bisect_left(self._sorted, start)
        while last < len(self._sorted) and self._sorted[last].startswith(start):
            last += 1
        return tuple(self._sorted[first:last])

    def __contains__(self, name: object) -> bool:
        return name in self._rows

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


def _made_once(make: Callable[[dict[str, Any]], T]) -> Callable[[dict[str, Any]], T]:
    """Make the facts of a row once, also where several names lead to it."""
    made: dict[int, T] = {}

    def make_once(row: dict[str, Any]) -> T:
        if id(row) not in made:
            made[id(row)] = make(row)
        return made[id(row)]

    return make_once


def _spellings(row: dict[str, Any]) -> Iterator[str]:
    yield row["flag"]
    yield from row.get("aliases", ())
    yield from row.get("negatives", ())


def _tuples(row: dict[str, Any]) -> dict[str, Any]:
    lists = ("aliases", "negatives", "choices", "also")
    # That a default is decided when the engine runs is for those who read the table.
    row = {key: value for key, value in row.items() if key != "computed"}
    return {key: tuple(value) if key in lists else value for key, value in row.items()}
