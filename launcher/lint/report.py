"""What one run has to say: findings with their files, texts and fingerprints, and its errors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from kimi_serve.schemas.findings import Finding

from .source_text import SourceText


@dataclass(frozen=True, slots=True)
class Reported:
    """One finding as it is reported; `profile` is the file that was linted when it came up."""

    finding: Finding
    profile: str
    fingerprint: str

    @property
    def file(self) -> str | None:
        """The file it stands in, None for a variable, a flag or a default."""
        origin = self.finding.origin
        return origin.name if origin.line is not None else None


@dataclass(frozen=True, slots=True)
class Report:
    """All that any format may show. `errors` are why the run itself failed (exit code 2)."""

    files: tuple[str, ...] = ()
    reported: tuple[Reported, ...] = ()
    sources: Mapping[str, SourceText] = field(default_factory=lambda: dict[str, SourceText]())
    errors: tuple[str, ...] = ()
    exit_code: int = 0
    num_vanished: int = 0

    def count(self, severity: str) -> int:
        """Count the findings of one severity."""
        return sum(item.finding.severity == severity for item in self.reported)

    def by_rule(self) -> dict[str, int]:
        """Count the findings of each rule, the most frequent first."""
        counts = Counter(item.finding.rule for item in self.reported)
        return dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))


def plural(number: int, noun: str) -> str:
    """Write a number with its noun."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
