"""Fingerprints of findings, and the baseline file of those that a repository lives with.

A fingerprint hashes rule, file, setting and the message without its values, so that it survives
moved lines and tells nobody what stands in the file.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from kimi_serve.schemas.findings import Finding

from .source_text import SourceText

FORMAT_VERSION: Final = "1.0"
# Quoted words, numbers, and what follows "must be ..., not".
_VALUES = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|, not [^;:,]*|\d+(?:[.,]\d+)*")


def repository_root(folder: Path) -> Path:
    """Give the folder above with `.git`, else the working directory."""
    whole = Path(os.path.abspath(folder))
    for candidate in (whole, *whole.parents):
        if (candidate / ".git").exists():
            return candidate
    return Path.cwd()


def relative_name(name: str, root: Path) -> str:
    """Give a file as seen from `root`, with forward slashes."""
    try:
        return Path(os.path.relpath(name, root)).as_posix()
    except ValueError:
        return name


def home_of(finding: Finding, name: str) -> str:
    """Say where a finding belongs: its file, `env:NAME`, or the profile that was linted."""
    origin = finding.origin
    if origin.kind in ("env", "engine-env"):
        return f"env:{origin.name}"
    return origin.name if origin.line is not None else name


def fingerprint(finding: Finding, name: str, source: SourceText | None, root: Path) -> str:
    """Give the fingerprint of a finding of the profile `name`; `source` is the text it is in."""
    home = home_of(finding, name)
    file = home if home.startswith("env:") else relative_name(home, root)
    words = _without_values(finding, source)
    whole = "\0".join((finding.rule, file, finding.path, words))
    return hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()


def _without_values(finding: Finding, source: SourceText | None) -> str:
    origin, message = finding.origin, finding.message
    if source and origin.line and origin.column and origin.end_column:
        written = source.piece(origin.line, origin.column, origin.end_column).strip("'\"")
        if written:
            pattern = rf"(?<!\w){re.escape(written)}(?!\w)"
            message = re.sub(pattern, "_", message)
    return _VALUES.sub("_", message)


@dataclass(frozen=True, slots=True)
class Judged:
    """Findings that the baseline does not know, and how many of its entries are gone."""

    new: tuple[Finding, ...]
    num_vanished: int


def apply_baseline(marks: Mapping[Finding, str], known: Mapping[str, int]) -> Judged:
    """Take off what the baseline counts, fingerprint by fingerprint."""
    left = Counter(known)
    new: list[Finding] = []
    for finding, mark in marks.items():
        if left[mark] > 0:
            left[mark] -= 1
        else:
            new.append(finding)
    return Judged(tuple(new), sum(left.values()))


def read_baseline(data: bytes) -> dict[str, int]:
    """Read a baseline file; ValueError, without repeating anything of it, for any other."""
    try:
        document: Any = json.loads(data)
        entries = cast("list[dict[str, Any]]", document["entries"])
        counts = {str(entry["fingerprint"]): int(entry["count"]) for entry in entries}
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError("that is no baseline of kimi-serve lint") from None
    if not str(document.get("format_version", "")).startswith("1."):
        raise ValueError("that baseline has another format_version than 1.x")
    return counts


def baseline_text(marks: Iterable[tuple[Finding, str]]) -> str:
    """Write a baseline: stable order, no values, no line numbers."""
    pairs = list(marks)
    rules = {mark: finding.rule for finding, mark in pairs}
    counts = Counter(mark for _, mark in pairs)
    entries = [
        {"rule": rules[mark], "fingerprint": mark, "count": counts[mark]}
        for mark in sorted(counts, key=lambda mark: (rules[mark], mark))
    ]
    document = {"format_version": FORMAT_VERSION, "tool": "kimi-serve lint", "entries": entries}
    return json.dumps(document, indent=2) + "\n"
