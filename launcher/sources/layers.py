"""What one source gave: typed leaves with their origin, and what there is to say about them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from kimi_serve.schemas.findings import Finding, Severity
from kimi_serve.schemas.provenance import Origin


class Unset:
    """The type of `UNSET`: a text that says nothing, or a value that was refused."""


UNSET: Final = Unset()


@dataclass(frozen=True, slots=True)
class Leaf:
    """One setting as one source set it.

    `raw` is what was written: text, or lists and mappings of text; "***" for a secret.
    """

    path: str
    raw: Any
    value: Any
    origin: Origin


@dataclass(frozen=True, slots=True)
class Layer:
    """All that one file, the environment or the command line gave."""

    name: str
    leaves: tuple[Leaf, ...] = ()
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of one line: 1-based, in code points, `end_column` exclusive."""

    line: int
    column: int
    end_column: int


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
    ) -> None:
        others = tuple(self.place(other) for other in related)
        self.findings.append(Finding(rule, severity, message, self.place(span), path, help, others))


class RefusedError(Exception):
    """A value cannot be taken: the rule it breaks, why, and what to do."""

    def __init__(self, rule: str, message: str, help: str | None = None) -> None:
        super().__init__(message)
        self.rule = rule
        self.message = message
        self.help = help
