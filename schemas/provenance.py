"""Where a value came from, and why a decision was taken."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

T = TypeVar("T")

OriginKind = Literal["default", "profile", "engine-env", "env", "env-file", "flag"]


@dataclass(frozen=True, slots=True)
class Origin:
    """The place that set a value: a file position, a variable, a flag, or the built-in default.

    `line`, `column` and `end_column` are 1-based and count code points; `end_column` is exclusive.
    """

    kind: OriginKind
    name: str = ""
    line: int | None = None
    column: int | None = None
    end_column: int | None = None

    def __str__(self) -> str:
        if self.kind == "default":
            return "default"
        if self.kind in ("env", "engine-env"):
            return f"env {self.name}"
        if self.line is None:
            return self.name
        return f"{self.name}:{self.line}:{self.column}"


DEFAULT = Origin("default")


@dataclass(frozen=True, slots=True)
class EntryOrigin:
    """Where one entry of a mapping stands: its name, and its value."""

    name: Origin
    value: Origin


@dataclass(frozen=True, slots=True)
class Resolved(Generic[T]):
    """A decided value with the setting, file or probe that decided it, and why."""

    value: T
    source: str
    reason: str
