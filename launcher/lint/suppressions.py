"""Suppressions: `# kimi-serve: ignore[KS201] reason` and `# kimi-serve: ignore-file[KS401] reason`.

What they hide is dropped; one that hides nothing, gives no reason, or is misspelt, is KS007. An
error of a KS0xx rule cannot be hidden: such a file is not read as it is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise

from kimi_serve.schemas.findings import Edit, Finding, Fix, Severity
from kimi_serve.schemas.provenance import Origin
from kimi_serve.schemas.rules import RULES

from ..sources.near import closest
from .source_text import Comment, SourceText

_COMMENT = re.compile(
    r"#\s*kimi-serve:\s*(?P<kind>ignore-file|ignore)(?![\w-])(?:\[(?P<codes>[^\]]*)\])?[:\s]*"
    r"(?P<reason>.*)",
    re.IGNORECASE,
)
# What was meant as one: our name, then a word with rules behind it, or a word like `ignore`.
_ATTEMPT = re.compile(
    r"#\s*kimi[-_ ]?serve\b[\s:=]*(?P<word>[\w-]+)(?P<codes>[\s=:\[(]*KS\d)?", re.IGNORECASE
)
_START = re.compile(r"(?=#\s*kimi[-_ ]?serve\b)", re.IGNORECASE)


@dataclass(slots=True)
class _Suppression:
    """One comment, or a piece of one; `line` is what it covers, None for the whole file.

    `is_misspelt` is for one that nothing can be read from.
    """

    file: str
    comment: Comment
    line: int | None
    codes: tuple[str, ...]
    reason: str
    is_misspelt: bool = False
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
    for comment in chain.from_iterable(map(_pieces, source.comments or ())):
        match = _COMMENT.fullmatch(comment.text.rstrip())
        if match is None:
            if _is_attempt(comment.text):
                yield _Suppression(name, comment, comment.line, (), "", is_misspelt=True)
            continue
        codes = (code.strip().upper() for code in (match["codes"] or "").split(","))
        line = None if match["kind"].casefold() == "ignore-file" else _covered(comment, source)
        known = tuple(dict.fromkeys(code for code in codes if code))
        yield _Suppression(name, comment, line, known, match["reason"].strip())


def _pieces(comment: Comment) -> Iterator[Comment]:
    """Give what stands behind each mention of us: other tools have their comments there too."""
    starts = [match.start() for match in _START.finditer(comment.text)]
    for start, end in pairwise([*starts, len(comment.text)]):
        yield replace(comment, column=comment.column + start, text=comment.text[start:end])


def _is_attempt(text: str) -> bool:
    match = _ATTEMPT.match(text)
    if match is None:
        return False
    word = match["word"].casefold()
    return bool(match["codes"]) or closest(word, ("ignore", "ignore-file"), 0.75) is not None


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
    if item.is_misspelt or not item.codes:
        fault = "is misspelt" if item.is_misspelt else "names no rules"
        yield _note(
            item,
            f"this ignore comment {fault}, so it hides nothing",
            "write # kimi-serve: ignore[KS201] and a reason",
            severity="warning",
        )
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
    line = source.line(comment.line)
    before, behind = line[: comment.column - 1], line[end - 1 :]
    # What is a comment behind it stays one only with the blank before it.
    start = comment.column if behind.strip() else len(before.rstrip()) + 1
    return Fix("safe", (Edit(item.file, comment.line, start, end, ""),))


def _note(
    item: _Suppression,
    message: str,
    help: str | None = None,
    fix: Fix | None = None,
    severity: Severity = "info",
) -> Finding:
    comment = item.comment
    end = comment.column + len(comment.text.rstrip())
    origin = Origin("profile", item.file, comment.line, comment.column, end)
    return Finding("KS007", severity, message, origin, help=help, fix=fix)
