"""What one source gave: typed leaves with their origin, and what there is to say about them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from kimi_serve.schemas.findings import Edit, Finding, Fix, Severity
from kimi_serve.schemas.provenance import EntryOrigin, Origin

from .characters import OddCharacter


class Unset:
    """The type of `UNSET`: a text that says nothing, or a value that was refused."""


UNSET: Final = Unset()


@dataclass(frozen=True, slots=True)
class Leaf:
    """One setting as one source set it.

    `raw` is what was written: text, or lists and mappings of text; "***" for a secret. `items` and
    `entries` say where the parts of a list or a mapping stand, in sources that have places.
    `variable` is the one that a secret was read from, "" where there is none.
    """

    path: str
    raw: Any
    value: Any
    origin: Origin
    items: tuple[Origin, ...] = ()
    entries: Mapping[str, EntryOrigin] = field(default_factory=lambda: dict[str, EntryOrigin]())
    variable: str = ""


@dataclass(frozen=True, slots=True)
class Layer:
    """All that one file, the environment or the command line gave.

    `name` is fit to be printed; `file` is the name of a file as it is.
    """

    name: str
    leaves: tuple[Leaf, ...] = ()
    findings: tuple[Finding, ...] = ()
    file: str = ""


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of one line: 1-based, in code points, `end_column` exclusive."""

    line: int
    column: int
    end_column: int


@dataclass(frozen=True, slots=True)
class Mend:
    """A replacement that would mend what a finding is about."""

    span: Span
    text: str
    applicability: Literal["safe", "unsafe"] = "safe"


@dataclass(slots=True)
class Notes:
    """Collects the findings of one source; `place` turns a position in it into an origin."""

    place: Callable[[Span | None], Origin]
    findings: list[Finding] = field(default_factory=lambda: list[Finding]())

    @classmethod
    def on(cls, origin: Origin) -> Notes:
        """Start notes that are all about one place."""
        return cls(lambda _: origin)

    def turn_to(self, origin: Origin) -> None:
        """Let what follows be about another place."""
        self.place = lambda _: origin

    def add(
        self,
        rule: str,
        message: str,
        span: Span | None = None,
        *,
        severity: Severity = "error",
        path: str = "",
        help: str | None = None,
        related: tuple[Span, ...] = (),
        fix: Fix | None = None,
        mend: Mend | None = None,
    ) -> None:
        others = tuple(self.place(other) for other in related)
        fix = self._fix(mend) if mend else fix
        origin = self.place(span)
        self.findings.append(Finding(rule, severity, message, origin, path, help, others, fix))

    def _fix(self, mend: Mend) -> Fix | None:
        """Turn a replacement into a fix; only a file can be mended."""
        where = self.place(mend.span)
        if where.kind != "profile" or where.line is None:
            return None
        edit = Edit(where.name, mend.span.line, mend.span.column, mend.span.end_column, mend.text)
        return Fix(mend.applicability, (edit,))


class RefusedError(Exception):
    """A value cannot be taken: the rule it breaks, why, what to do, what would mend it.

    `odd` is a character that must not be there.
    """

    def __init__(
        self,
        rule: str,
        message: str,
        help: str | None = None,
        *,
        mend: Mend | None = None,
        odd: OddCharacter | None = None,
    ) -> None:
        super().__init__(message)
        self.rule = rule
        self.message = message
        self.help = help
        self.mend = mend
        self.odd = odd
