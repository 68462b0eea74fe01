"""What one run has to say: findings with their files, texts and fingerprints, and its errors."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kimi_serve.schemas.findings import Finding
from kimi_serve.schemas.provenance import Origin

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
    """All that any format may show. `errors` are why the run itself failed (exit code 2).

    All names of files are fit to be printed; `names` has them as they are.
    """

    files: tuple[str, ...] = ()
    reported: tuple[Reported, ...] = ()
    sources: Mapping[str, SourceText] = field(default_factory=lambda: dict[str, SourceText]())
    errors: tuple[str, ...] = ()
    exit_code: int = 0
    num_vanished: int = 0
    names: Mapping[str, str] = field(default_factory=lambda: dict[str, str]())

    def count(self, severity: str) -> int:
        """Count the findings of one severity."""
        return sum(item.finding.severity == severity for item in self.reported)

    def by_rule(self) -> dict[str, int]:
        """Count the findings of each rule, the most frequent first."""
        counts = Counter(item.finding.rule for item in self.reported)
        return dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))


def renamed(finding: Finding, names: Mapping[str, str]) -> Finding:
    """Give a finding with other names for its files."""

    def place(origin: Origin) -> Origin:
        return replace(origin, name=names.get(origin.name, origin.name))

    fix = finding.fix
    if fix is not None:
        edits = (replace(edit, file=names.get(edit.file, edit.file)) for edit in fix.edits)
        fix = replace(fix, edits=tuple(edits))
    related = tuple(map(place, finding.related))
    return replace(finding, origin=place(finding.origin), related=related, fix=fix)


def help_of(finding: Finding) -> str:
    """Give what to do, "" where the message says it in the same words."""
    help = finding.help or ""
    return "" if help and finding.message.endswith(help) else help


def sentences(finding: Finding) -> str:
    """Give message and help as sentences that follow each other."""
    message, help = finding.message, help_of(finding)
    if not help:
        return message
    # Only a word of the language takes a capital: what else begins in lower case is a name.
    word = re.match(r"[a-z]+(?=[ ,;:])", help)
    begun = f"{help[:1].upper()}{help[1:]}" if word else help
    return f"{message}{'' if message.endswith(('.', '?', '!')) else '.'} {begun}"
