"""What the reader, the rules and the resolver have to say about a configuration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from .provenance import Origin

Severity = Literal["error", "warning", "info"]
SEVERITIES: tuple[Severity, ...] = get_args(Severity)
"""The most severe first."""


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace the text from `column` to `end_column` of one line; 1-based, end exclusive."""

    file: str
    line: int
    column: int
    end_column: int
    text: str


@dataclass(frozen=True, slots=True)
class Fix:
    """What would mend a finding; a safe one does not change what the file means to us."""

    applicability: Literal["safe", "unsafe"]
    edits: tuple[Edit, ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """One statement about one setting, in the words of rule `rule` (KSnnn).

    `path` is the dotted setting, "" when the finding is not about one. `message` never holds a
    secret. `help` says what to do.
    """

    rule: str
    severity: Severity
    message: str
    origin: Origin
    path: str = ""
    help: str | None = None
    related: tuple[Origin, ...] = ()
    fix: Fix | None = None

    def __str__(self) -> str:
        return f"{self.origin}: {self.severity} {self.rule} {self.message}"
