"""The unified diff of a mended file, byte for byte, as `patch -p0` takes it."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..secrets.known import Known
from .source_text import SourceText

_CONTEXT = 3
_Codes = tuple[str, int, int, int, int]
# A header's name with one of these is written as C has it.
_ESCAPED = re.compile(rb'[\x00-\x1f\x7f"\\]')


@dataclass(frozen=True, slots=True)
class Patch:
    """A diff, and how many changes it leaves out because a secret stands on their lines."""

    data: bytes
    num_left_out: int


def make_patch(before: bytes, after: bytes, name: str, known: Known) -> Patch:
    """Compare two texts; no line with a secret is shown. `known` are secrets from elsewhere.

    Around a change stand as many lines as can be shown, up to three on each side.
    """
    sources = [SourceText.read(data) for data in (before, after)]
    known |= Known(value for source in sources for value in source.values)
    hidden = [_hidden_rows(source.hiding(known)) for source in sources]
    old, new = _lines(before), _lines(after)
    groups: list[list[_Codes]] = []
    left_out: list[list[_Codes]] = []
    for context in range(_CONTEXT, -1, -1):
        matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
        groups = list(matcher.get_grouped_opcodes(context))
        if not context:
            groups = [[code] for group in groups for code in _line_by_line(group)]
        left_out = [group for group in groups if _touches(group, *hidden)]
        if not left_out:
            break
    pieces: list[bytes] = []
    shift = 0
    for group in groups:
        if group in left_out:
            shift += (group[-1][2] - group[0][1]) - (group[-1][4] - group[0][3])
        else:
            pieces += _hunk(group, old, new, shift)
    if pieces:
        header = _header(name)
        pieces = [b"--- %s\n+++ %s\n" % (header, header), *pieces]
    return Patch(b"".join(pieces), len(left_out))


def _lines(data: bytes) -> list[bytes]:
    """Split as patch does: a CR is a byte of its line."""
    lines = [line + b"\n" for line in data.split(b"\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def _hidden_rows(source: SourceText) -> frozenset[int]:
    """Give the lines, from 0, that must not be shown."""
    if not source.may_be_shown:
        return frozenset(range(source.text.count("\n") + 1))
    return frozenset(
        source.text.count("\n", 0, start)
        for number, start in enumerate(source.starts, start=1)
        if source.masked(number) != source.line(number)
    )


def _line_by_line(group: Sequence[_Codes]) -> Iterator[_Codes]:
    """Take changed lines apart: what one of them hides need not hide its neighbours."""
    for tag, old_start, old_end, new_start, new_end in group:
        if old_end - old_start != new_end - new_start:
            yield tag, old_start, old_end, new_start, new_end
            continue
        for row in range(old_end - old_start):
            yield tag, old_start + row, old_start + row + 1, new_start + row, new_start + row + 1


def _touches(group: Sequence[_Codes], old: frozenset[int], new: frozenset[int]) -> bool:
    (_, old_start, _, new_start, _), (_, _, old_end, _, new_end) = group[0], group[-1]
    return not (
        old.isdisjoint(range(old_start, old_end)) and new.isdisjoint(range(new_start, new_end))
    )


def _hunk(
    group: Sequence[_Codes], old: list[bytes], new: list[bytes], shift: int
) -> Iterator[bytes]:
    """Write one hunk; `shift` is how far what is left out above would have moved it."""
    first, last = group[0], group[-1]
    removed = _range(first[1], last[2])
    added = _range(first[3] + shift, last[4] + shift)
    yield f"@@ -{removed} +{added} @@\n".encode()
    for tag, old_start, old_end, new_start, new_end in group:
        if tag == "equal":
            yield from _marked(b" ", old[old_start:old_end])
        else:
            yield from _marked(b"-", old[old_start:old_end])
            yield from _marked(b"+", new[new_start:new_end])


def _range(start: int, end: int) -> str:
    """Give a range of lines; an empty one begins at the line before it."""
    length = end - start
    if length == 1:
        return str(start + 1)
    return f"{start + 1 if length else start},{length}"


def _marked(mark: bytes, lines: Sequence[bytes]) -> Iterator[bytes]:
    for line in lines:
        yield mark + line
        if not line.endswith(b"\n"):
            yield b"\n\\ No newline at end of file\n"


def _header(name: str) -> bytes:
    """Write a name: as seen from here, for patch refuses absolute ones; a tab ends one with blanks.

    An odd one is quoted.
    """
    inside = os.path.relpath(name) if os.path.isabs(name) else name
    data = os.fsencode(name if inside.startswith("..") else inside)
    if _ESCAPED.search(data):
        return b'"%s"' % _ESCAPED.sub(lambda match: b"\\%03o" % match.group()[0], data)
    return data + b"\t" if b" " in data else data
