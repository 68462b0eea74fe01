"""Fingerprints of findings, and the baseline file of those that a repository lives with.

A fingerprint hashes rule, file, setting and the message without its values, so that it survives
moved lines and tells nobody what stands in the file. It is the same from every working directory.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, cast

from kimi_serve.schemas.findings import Finding

from .source_text import SourceText

FORMAT_VERSION: Final = "1.0"
MAX_BYTES: Final = 16 * 1024 * 1024
_NO_BASELINE: Final = "that is no baseline of kimi-serve lint"
# Quoted words, numbers, and what follows "must be ..., not".
_VALUES = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|, not [^;:,]*|\d+(?:[.,]\d+)*")


def stable_name(name: str) -> str:
    """Give a file as seen from its repository, else its name alone; with forward slashes."""
    if name.startswith("<"):  # standard input, or the command line
        return name
    folder, last = os.path.split(os.path.abspath(name))
    root = _repository_root(folder)
    return Path(os.path.relpath(os.path.join(folder, last), root)).as_posix() if root else last


@cache
def _repository_root(folder: str) -> Path | None:
    """Give the folder above with `.git`."""
    whole = Path(folder)
    return next((each for each in (whole, *whole.parents) if (each / ".git").exists()), None)


def home_of(finding: Finding, name: str) -> str:
    """Say where a finding belongs: its file, `env:NAME`, or the profile that was linted."""
    origin = finding.origin
    if origin.kind in ("env", "engine-env"):
        return f"env:{origin.name}"
    return origin.name if origin.line is not None else name


def fingerprint(finding: Finding, name: str, source: SourceText | None) -> str:
    """Give the fingerprint of a finding of the profile `name`; `source` is the text it is in."""
    home = home_of(finding, name)
    file = home if home.startswith("env:") else stable_name(home)
    words = _without_values(finding, source)
    whole = "\0".join((finding.rule, file, finding.path, words))
    return hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()


def _without_values(finding: Finding, source: SourceText | None) -> str:
    origin, message = finding.origin, finding.message
    if source and origin.line and origin.column and origin.end_column:
        written = source.piece(origin.line, origin.column, origin.end_column).strip("'\"")
        if written:
            message = _without_word(message, written)
    return _VALUES.sub("_", message)


def _without_word(text: str, word: str) -> str:
    """Write "_" for a word where it stands alone; a pattern would be compiled for each finding."""
    pieces: list[str] = []
    last, index = 0, text.find(word)
    while index >= 0:
        end = index + len(word)
        around = text[index - 1 : index] + text[end : end + 1] if index else text[end : end + 1]
        if any(character.isalnum() or character == "_" for character in around):
            index = text.find(word, index + 1)
            continue
        pieces += [text[last:index], "_"]
        last, index = end, text.find(word, end)
    return "".join([*pieces, text[last:]])


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
        found: object = json.loads(data)
    except (ValueError, RecursionError):
        raise ValueError(f"{_NO_BASELINE}: it is not JSON") from None
    document = cast("dict[str, object]", found) if isinstance(found, dict) else {}
    entries = document.get("entries")
    if not isinstance(entries, list):
        raise ValueError(f"{_NO_BASELINE}: it has no list of entries")
    version = document.get("format_version")
    if not (isinstance(version, str) and re.fullmatch(r"1\.[0-9]+", version)):
        raise ValueError("that baseline has another format_version than 1.x")
    counts: dict[str, int] = {}
    for number, entry in enumerate(cast("list[object]", entries), start=1):
        mark, count = _read_entry(entry, f"{_NO_BASELINE}: entry {number}")
        if mark in counts:
            raise ValueError(f"{_NO_BASELINE}: entry {number} has the fingerprint of another")
        counts[mark] = count
    return counts


def _read_entry(entry: object, subject: str) -> tuple[str, int]:
    """Read one entry; ValueError, which begins with `subject`."""
    fields = cast("dict[str, object]", entry) if isinstance(entry, dict) else {}
    mark, count = fields.get("fingerprint"), fields.get("count")
    if not (isinstance(mark, str) and re.fullmatch(r"[0-9a-f]{64}", mark)):
        raise ValueError(f"{subject} has no fingerprint")
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise ValueError(f"{subject} has a count that is no whole number above 0")
    return mark, count


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
