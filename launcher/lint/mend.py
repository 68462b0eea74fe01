"""Applies safe fixes to a text; every byte that no edit names stays as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from kimi_serve.schemas.findings import Edit, Finding, Fix

from .source_text import SourceText

MAX_ROUNDS: Final = 20
_BOM = b"\xef\xbb\xbf"
_UNREADABLE = frozenset({"KS001", "KS002", "KS003"})

Lint = Callable[[bytes], Sequence[Finding]]


def mend(data: bytes, name: str, lint: Lint) -> bytes:
    """Apply safe fixes round by round until none is left; text that is not UTF-8 stays."""
    for _ in range(MAX_ROUNDS):
        findings = lint(data)
        fixes = safe_fixes(findings, name)
        better = _one_round(data, fixes, lint, _num_unreadable(findings)) if fixes else data
        if better == data:
            break
        data = better
    return data


def safe_fixes(findings: Iterable[Finding], name: str) -> list[Fix]:
    """Give the safe fixes that touch this file alone."""
    fixes = (found.fix for found in findings if found.fix and found.fix.edits)
    return [
        fix
        for fix in dict.fromkeys(fixes)
        if fix.applicability == "safe" and all(edit.file == name for edit in fix.edits)
    ]


def _one_round(data: bytes, fixes: list[Fix], lint: Lint, limit: int) -> bytes:
    """Apply what fits together; a fix that would leave the file less readable is left out."""
    together = apply_fixes(data, fixes)
    if _num_unreadable(lint(together)) <= limit:
        return together
    for fix in fixes:
        alone = apply_fixes(data, [fix])
        if alone != data and _num_unreadable(lint(alone)) <= limit:
            return alone
    return data


def _num_unreadable(findings: Iterable[Finding]) -> int:
    return sum(finding.rule in _UNREADABLE for finding in findings)


def apply_fixes(data: bytes, fixes: Iterable[Fix]) -> bytes:
    """Make the edits of the fixes; a fix that overlaps an earlier one waits for the next round."""
    mark = _BOM if data.startswith(_BOM) else b""
    try:
        text = data[len(mark) :].decode("utf-8")
    except UnicodeDecodeError:
        return data
    source = SourceText.read(data)
    if source.text != text:
        return data  # longer than a profile may be
    taken: list[tuple[int, int, str]] = []
    for fix in fixes:
        spans = [_span(edit, source) for edit in fix.edits]
        if all(_is_free(span, taken) for span in spans):
            taken += spans
    for start, end, new in sorted(taken, reverse=True):
        text = f"{text[:start]}{new}{text[end:]}"
    return mark + text.encode("utf-8")


def _span(edit: Edit, source: SourceText) -> tuple[int, int, str]:
    """Give the indexes of an edit; one that empties a line takes the line break with it."""
    line = source.line(edit.line)
    base = source.starts[edit.line - 1]
    start, end = base + edit.column - 1, base + edit.end_column - 1
    rest = line[: edit.column - 1] + line[edit.end_column - 1 :]
    if not edit.text and not rest.strip():
        is_last = edit.line == len(source.starts)
        return base, len(source.text) if is_last else source.starts[edit.line], ""
    return start, end, edit.text


def _is_free(span: tuple[int, int, str], taken: Iterable[tuple[int, int, str]]) -> bool:
    """Two edits that touch are one too many: an insertion at the same place has no order."""
    return all(span[1] < start or span[0] > end for start, end, _ in taken)
