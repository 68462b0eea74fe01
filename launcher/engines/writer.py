"""Collects what an engine is told: flags and variables with their settings and reasons."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kimi_serve.schemas.engine_facts import EngineTable, checked_versions, engine_table
from kimi_serve.schemas.engine_launch import EngineFlag, EngineVariable
from kimi_serve.schemas.provenance import Origin

from ..resolver.engine_view import ENV
from ..resolver.situation import Situation
from ..secrets.shapes import secrets_in
from ..secrets.trees import redacted
from ..sources.references import pieces

_LONG_WORD = re.compile(r"[A-Za-z0-9]{8,}")


@dataclass(frozen=True, slots=True)
class Unsaid:
    """A flag that a setting would become, if this release of the engine had it."""

    name: str
    path: str


class Writer:
    """Takes flags and variables in the order in which they will stand."""

    def __init__(self, situation: Situation) -> None:
        self.situation = situation
        self.flags: list[EngineFlag] = []
        self.variables: list[EngineVariable] = []
        self.unsaid: list[Unsaid] = []
        self._table = situation.table or _oldest_table(situation.kind)

    def flag(self, name: str, path: str, reason: str, *values: str, secret: str = "") -> None:
        """Say the setting at `path`, unless it is engine.args that say it."""
        if self.situation.is_set(path) or self.situation.flag(name) is None:
            self._add(name, path, self.situation.origin(path), reason, values, secret)

    def extra(self, name: str, path: str, origin: Origin, reason: str, value: str) -> None:
        """Say what follows from a setting, unless engine.args say something else."""
        if self.situation.flag(name) is None:
            self._add(name, path, origin, reason, (value,), "")

    def said(self, path: str, origin: Origin, reason: str, name: str, *values: str) -> None:
        """Say what has its place in front, `name` "" for a bare word."""
        self.flags.append(EngineFlag(name, path, origin, reason, values))

    def variable(
        self,
        name: str,
        path: str,
        reason: str,
        value: str | None,
        *,
        origin: Origin | None = None,
        secret: str = "",
    ) -> None:
        """Set a variable, or take it away when `value` is None."""
        origin = origin or self.situation.origin(path)
        self.variables.append(EngineVariable(name, path, origin, reason, value, secret))

    def take_away(self, name: str, path: str, reason: str) -> None:
        """Take away what is inherited, or written in engine.env against a setting."""
        self.variable(name, path, reason, None)

    def _add(
        self,
        name: str,
        path: str,
        origin: Origin,
        reason: str,
        values: tuple[str, ...],
        secret: str,
    ) -> None:
        if self._table is not None and name not in self._table.by_spelling:
            self.unsaid.append(Unsaid(name, path))
        else:
            # argparse takes a value that begins with a dash for a flag.
            joined = len(values) == 1 and values[0].startswith("-")
            self.flags.append(EngineFlag(name, path, origin, reason, values, secret, joined))


def _oldest_table(kind: str) -> EngineTable | None:
    """Give the nearest release to one that is older than every checked one."""
    versions = checked_versions(kind)
    return engine_table(kind, versions[0]) if versions else None


def add_own_variables(writer: Writer) -> None:
    """Add engine.env as it is written, but for the names that the settings have said already."""
    situation = writer.situation
    said = {variable.name for variable in writer.variables}
    for name, text in situation.settings.engine.env.items():
        if name not in said:
            is_secret = redacted({name: text}) != {name: text}
            origin = situation.loaded.entry(ENV, name).value
            secret = shell_name(name) if is_secret else ""
            reference = situation.loaded.written.get((ENV, name), "") if is_secret else ""
            written = reference if is_shown(reference, {name: reference}) else ""
            reason = "engine.env sets it"
            variable = EngineVariable(name, ENV, origin, reason, text, secret, written)
            writer.variables.append(variable)


def is_shown(written: str, whole: Mapping[str, str] | Sequence[str]) -> bool:
    """Say whether a text with references holds no secret beside them; `whole` is where it stands.

    A few characters around a reference are no secret; a long word may be one.
    """
    if not written:
        return False
    around = "".join(text for text, _ in pieces(written))
    return redacted(whole) == whole or not (_LONG_WORD.search(around) or secrets_in(around))


def shell_name(text: str) -> str:
    """Make a name that a shell takes for a variable."""
    if text.isascii() and text.isidentifier():
        return text
    name = "".join(char if char.isascii() and char.isalnum() else "_" for char in text)
    name = name.strip("_").upper() or "SECRET"
    return f"_{name}" if name[0].isdigit() else name
