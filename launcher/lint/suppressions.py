"""Suppressions: `# kimi-serve: ignore[KS201] reason` and `# kimi-serve: ignore-file[KS401] reason`.

What they hide is dropped; one that hides nothing, or gives no reason, is KS007. An error of a
KS0xx rule cannot be hidden: such a file is not read as it is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from kimi_serve.schemas.findings import Edit, Finding, Fix
from kimi_serve.schemas.provenance import Origin
from kimi_serve.schemas.rules import RULES

from .source_text import Comment, SourceText

_COMMENT = re.compile(
    r"#\s*kimi-serve:\s*(?P<kind>ignore-file|ignore)\b(?:\[(?P<codes>[^\]]*)\])?[:\s]*(?P<reason>.*)"
)


@dataclass(slots=True)
class _Suppression:
    """One comment; `line` is what it covers, None for the whole file."""

    file: str
    comment: Comment
    line: int | None
    codes: tuple[str, ...]
    reason: str
    used: set[str] = field(default_factory=lambda: set[str]())


def apply_suppressions(
    findings: Iterable[Finding], sources: Mapping[str, SourceText], root: str
) -> list[Finding]:
    """Drop what is suppressed; add what there is to say about the suppressions themselves.

    A file-wide one of the linted profile `root` also covers what has no place at all.
    """
    known = [item for name, source in sources.items() for item in _read(name, source)]
    kept = [finding for finding in findings if not _is_hidden(finding, known, root)]
    for item in known:
        kept += _judge(item, sources[item.file])
    return kept


def _read(name: str, source: SourceText) -> Iterator[_Suppression]:
    for comment in source.comments or ():
        match = _COMMENT.fullmatch(comment.text.rstrip())
        if match is None:
            continue
        codes = tuple(code.strip() for code in (match["codes"] or "").split(",") if code.strip())
        line = None if match["kind"] == "ignore-file" else _covered(comment, source)
        yield _Suppression(name, comment, line, codes, match["reason"].strip())


def _covered(comment: Comment, source: SourceText) -> int:
    """Give the line of a comment at a line's end, or the next line with more than a comment."""
    if not comment.is_alone:
        return comment.line
    for number in range(comment.line + 1, len(source.starts) + 1):
        text = source.line(number).strip()
        if text and not text.startswith("#"):
            return number
    return comment.line


def _is_hidden(finding: Finding, known: Iterable[_Suppression], root: str) -> bool:
    if not _may_hide(finding):
        return False
    hidden = False
    for item in known:
        if finding.rule in item.codes and _covers(item, finding, root):
            item.used.add(finding.rule)
            hidden = True
    return hidden


def _may_hide(finding: Finding) -> bool:
    return not (finding.rule.startswith("KS0") and finding.severity == "error")


def _covers(item: _Suppression, finding: Finding, root: str) -> bool:
    origin = finding.origin
    if item.line is None and origin.kind == "default":
        return item.file == root
    is_here = origin.kind == "profile" and origin.name == item.file
    return is_here and (item.line is None or item.line == origin.line)


def _judge(item: _Suppression, source: SourceText) -> Iterator[Finding]:
    if not item.codes:
        yield _note(item, "an ignore comment needs rules: ignore[KS201] and a reason")
        return
    if not item.reason:
        yield _note(item, "the ignore comment gives no reason", "write why after the bracket")
    unused = [code for code in item.codes if code not in item.used]
    if not unused:
        return
    unknown = [code for code in unused if code not in RULES]
    subject = ", ".join(code if code in RULES else "an unknown rule" for code in unused)
    verb = "is" if len(unused) == 1 else "are"
    reason = "there is no such rule" if unknown else "it hides nothing"
    left = [code for code in item.codes if code in item.used]
    yield _note(
        item,
        f"the suppression of {subject} {verb} unused: {reason}",
        "remove it; what needs --env or --check-host to be seen is seen with them only",
        _removal(item, left, source),
    )


def _removal(item: _Suppression, left: list[str], source: SourceText) -> Fix:
    """Take the unused rules out of the bracket, or the comment with the blanks before it."""
    comment = item.comment
    end = comment.column + len(comment.text)
    if left:
        text = re.sub(r"\[[^\]]*\]", f"[{', '.join(left)}]", comment.text, count=1)
        return Fix("safe", (Edit(item.file, comment.line, comment.column, end, text),))
    before = source.line(comment.line)[: comment.column - 1]
    return Fix("safe", (Edit(item.file, comment.line, len(before.rstrip()) + 1, end, ""),))


def _note(
    item: _Suppression, message: str, help: str | None = None, fix: Fix | None = None
) -> Finding:
    comment = item.comment
    end = comment.column + len(comment.text)
    origin = Origin("profile", item.file, comment.line, comment.column, end)
    return Finding("KS007", "info", message, origin, help=help, fix=fix)
