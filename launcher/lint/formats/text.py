"""For people: one line a finding, with the source line and a caret in the full format."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping

from kimi_serve.schemas.findings import Finding
from kimi_serve.schemas.provenance import Origin
from kimi_serve.schemas.rules import RULES
from kimi_serve.schemas.vocabulary import HIDDEN

from ...counted import counted
from ...sources.characters import printable
from ..report import Report, help_of
from ..source_text import SourceText

_TAB = 4
# Characters of a line that are shown, and how many of them before the caret.
_LONGEST = 160
_BEFORE = 60
_CUT = "..."


def concise(report: Report) -> str:
    """Give one line a finding, as grep and editors like it."""
    return "".join(f"{_head(item.finding, item.profile)}\n" for item in report.reported)


def full(report: Report) -> str:
    """Give each finding with its source line, and a summary."""
    blocks = [
        "\n".join(
            [
                _head(item.finding, item.profile),
                *_body(item.finding, report.sources),
            ]
        )
        for item in report.reported
    ]
    return "\n\n".join([*blocks, summary(report)]) + "\n"


def summary(report: Report) -> str:
    """Say how many findings of each severity there are."""
    files = counted(len(report.files), "file")
    if not report.reported:
        return f"no findings in {files}"
    counts = [
        counted(report.count(severity), noun)
        for severity, noun in (("error", "error"), ("warning", "warning"), ("info", "note"))
        if report.count(severity)
    ]
    return f"{', '.join(counts)} in {files}"


def statistics(report: Report) -> str:
    """Give how often each rule speaks."""
    return "".join(
        f"{count:>5}  {rule}  {RULES[rule].name}\n" for rule, count in report.by_rule().items()
    )


def _head(finding: Finding, profile: str) -> str:
    where = profile if finding.origin.kind == "default" else str(finding.origin)
    return _line(f"{where}: {finding.severity} {finding.rule} {finding.message}")


def _body(finding: Finding, sources: Mapping[str, SourceText]) -> Iterator[str]:
    origin = finding.origin
    source = sources.get(origin.name) if origin.kind == "profile" else None
    pad = ""
    if source and origin.line and source.may_be_shown:
        pad = " " * len(str(origin.line))
        yield from _snippet(source, origin.line, origin.column or 1, origin.end_column)
    if finding.path and origin.kind != "default":
        yield f"{pad} = {_line(f'{finding.path} set by {origin}')}"
    for other in finding.related:
        yield f"{pad} = see also {_line(_place(other))}"
    help = help_of(finding)
    more = f"(see `kimi-serve rule {finding.rule}`)"
    yield f"help: {_line(help)} {more}" if help else f"help: {more[1:-1]}"


def _place(origin: Origin) -> str:
    return "the default" if origin.kind == "default" else str(origin)


def _line(text: str) -> str:
    return printable(text)


def _snippet(source: SourceText, number: int, column: int, end: int | None) -> Iterator[str]:
    """Give the source line and carets under its columns, as wide as a terminal draws them.

    Of a long line what stands around the first caret is given.
    """
    length = len(source.line(number))
    start = max(0, min(column - 1 - _BEFORE, length - _LONGEST)) if length > _LONGEST else 0
    cells = _cells(source, number, start)
    lead, tail = _CUT if start else "", _CUT if start + len(cells) < length else ""
    first = column - 1 - start
    last = min(max(end or 0, column + 1) - 1 - start, len(cells))
    before = len(lead) + sum(map(_width, cells[:first]))
    marked = sum(map(_width, cells[first:last])) or 1
    pad = " " * len(str(number))
    yield f"{pad} |"
    yield f"{number} | {lead}{''.join(cells)}{tail}".rstrip()
    yield f"{pad} | {' ' * before}{'^' * marked}"


def _cells(source: SourceText, number: int, start: int) -> list[str]:
    """Give what is drawn for each character from `start` on: tabs as blanks, secrets as "***"."""
    stop = start + _LONGEST
    hidden = {
        column: HIDDEN if column == max(first, start + 1) else ""
        for first, last in source.hidden_columns(number)
        for column in range(max(first, start + 1), min(last, stop + 1))
    }
    cells: list[str] = []
    width = 0
    for column, character in enumerate(source.line(number)[start:stop], start=start + 1):
        cell = hidden.get(column)
        if cell is None:
            blanks = " " * (_TAB - width % _TAB)
            cell = blanks if character == "\t" else _visible(character)
        cells.append(cell)
        width += _width(cell)
    return cells


def _visible(character: str) -> str:
    """Escape what a terminal acts on; a combining mark stays with its letter."""
    if unicodedata.category(character) in ("Mn", "Me"):
        return character
    return printable(character)


def _width(cell: str) -> int:
    return sum(
        0
        if unicodedata.category(character) in ("Mn", "Me")
        else 2
        if unicodedata.east_asian_width(character) in ("W", "F")
        else 1
        for character in cell
    )
