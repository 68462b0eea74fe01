"""What a checked release of an engine takes on its command line and in its environment.

The tables lie in `engine_tables/`, one file a release, written by `scripts/engine_tables.py` from
the engine's own package. Nothing here imports an engine.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, Literal

from .engine_booleans import BooleanOutcome, read_boolean
from .support import version_key

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

FlagAction = Literal["store", "store_true", "boolean", "append"]
_SWITCHES = ("store_true", "boolean")


@dataclass(frozen=True, slots=True)
class FlagFacts:
    """One flag. `deprecated` says what to write instead, "" where the flag is no old name.

    `computed` tells that the default is decided when the engine runs; `default` is None then.
    `choices` is None where anything of the type is taken, or where they are not known.
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
    computed: bool = False
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
    computed: bool = False
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
                return EnvFacts(name, twin.kind, twin.also, deprecated_by=twin.name)
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


def engines() -> tuple[str, ...]:
    """Name the engines that have a table."""
    return tuple(sorted({engine for engine, _ in _names()}))


@cache
def checked_versions(engine: str) -> tuple[str, ...]:
    """List the releases of an engine that have a table, oldest first."""
    return tuple(sorted((v for e, v in _names() if e == engine), key=version_key))


def _names() -> Iterator[tuple[str, str]]:
    for file in _folder().iterdir():
        if file.name.endswith(".json"):
            engine, _, version = file.name.removesuffix(".json").partition("-")
            yield engine, version


def _folder() -> Traversable:
    return files("kimi_serve.schemas") / "engine_tables"


@cache
def _load(engine: str, version: str) -> EngineTable:
    text = (_folder() / f"{engine}-{version}.json").read_text(encoding="utf-8")
    data: dict[str, Any] = json.loads(text)
    flags = [FlagFacts(**_tuples(row)) for row in data["flags"]]
    variables = [EnvFacts(**_tuples(row)) for row in data["environment"]]
    variables += [
        EnvFacts(**_tuples(row), declared=False) for row in data["undeclared_environment"]
    ]
    return EngineTable(
        engine=data["engine"],
        version=data["version"],
        **data["spelling"],
        prefixes=tuple(data["prefixes"]),
        renamed_prefixes=data["renamed_prefixes"],
        by_spelling={spelling: flag for flag in flags for spelling in flag.spellings},
        by_field=_by_field(flags),
        environment={variable.name: variable for variable in variables},
        gone={row["name"]: RemovedFacts(**row) for row in data["removed"]},
    )


def _by_field(flags: list[FlagFacts]) -> dict[str, FlagFacts]:
    """A field's flag is the one to write today."""
    return {flag.field: flag for flag in sorted(flags, key=lambda flag: not flag.deprecated)}


def _tuples(row: dict[str, Any]) -> dict[str, Any]:
    lists = ("aliases", "negatives", "choices", "also")
    return {key: tuple(value) if key in lists else value for key, value in row.items()}
