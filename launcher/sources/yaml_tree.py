"""YAML text to a tree with positions; knows nothing of settings.

The tree is built from parser events, so nesting cannot exhaust the stack, aliases are never
followed and no tag is ever acted on.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, cast

import yaml

from .characters import OLD_BREAKS, OddCharacter, find_invisible, plain_for
from .layers import Mend, Notes, Span
from .yaml_loader import LOADER
from .yaml_nodes import Broken, Items, Node, Scalar, ScalarKind, Table, scalar_kind

MAX_BYTES: Final = 256 * 1024
MAX_DEPTH: Final = 20


def parse_yaml(data: bytes | str, notes: Notes) -> Node | None:
    """Read one document; None when it is empty or cannot be read, which `notes` then says."""
    if len(data) > MAX_BYTES:
        notes.add("KS001", f"the text is larger than {MAX_BYTES // 1024} KiB", Span(1, 1, 2))
        return None
    text = _decode(data, notes) if isinstance(data, bytes) else data
    if text is None:
        return None
    text = text.removeprefix("\ufeff")
    lines = _Lines(text)
    refused = _first_refused(text)
    if refused:
        odd = OddCharacter(refused.group(), lines.span(refused.start()).column - 1)
        span = lines.span(refused.start())
        message = f"{odd} of the line is not allowed here"
        help = None
        if refused.group() in OLD_BREAKS:
            message = f"{odd} of the line ends it for readers of YAML 1.1, and for no others"
            help = "write a line break, or nothing: a setting may hide behind a comment here"
        notes.add("KS006", message, span, help=help, mend=_plain(refused.group(), span))
        return None
    return _build(text, lines, notes)


# What YAML 1.2 calls not printable, the byte order mark inside a text, and `OLD_BREAKS`.
_NOT_YAML: Final = (
    r"[^\t\n\r\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd"
    r"\U00010000-\U0010ffff]"
)
_NOT_YAML_ASCII = re.compile(r"[^\t\n\r\x20-\x7e]")


def _first_refused(text: str) -> re.Match[str] | None:
    """Find a character that YAML does not take; the whole pattern is slow to compile."""
    return (_NOT_YAML_ASCII if text.isascii() else re.compile(_NOT_YAML)).search(text)


_OTHER_MARKS: Final = (
    (b"\xff\xfe\0\0", "UTF-32"),
    (b"\0\0\xfe\xff", "UTF-32"),
    (b"\xff\xfe", "UTF-16"),
    (b"\xfe\xff", "UTF-16"),
)


def _decode(data: bytes, notes: Notes) -> str | None:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8").removeprefix("\ufeff")
        found = f"byte 0x{data[error.start]:02x} at offset {error.start}"
        # The mark of UTF-32 begins like that of UTF-16.
        other = next((name for mark, name in _OTHER_MARKS if data.startswith(mark)), "")
        notes.add(
            "KS001",
            f"the file is {other}, not UTF-8" if other else f"{found} is not UTF-8",
            _Lines(before).span(len(before)),
            help="save the file as UTF-8",
        )
        return None


class _Lines:
    """Positions by index into a text; lines end as editors see it: \\n, \\r\\n or \\r."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._starts = [0, *(match.end() for match in re.finditer(r"\r\n|\r|\n", text))]

    def span(self, start: int, end: int | None = None) -> Span:
        """Give what lies on the first line of `start`..`end`; one character without `end`."""
        row = bisect_right(self._starts, start) - 1
        first = self._starts[row]
        following = self._starts[row + 1] if row + 1 < len(self._starts) else len(self._text)
        line_end = first + len(self._text[first:following].rstrip("\r\n"))
        stop = min(start + 1 if end is None else end, line_end)
        return Span(row + 1, start - first + 1, max(stop, start + 1) - first + 1)

    def word(self, start: int) -> Span:
        """Give what lies between `start` and the next blank."""
        word = re.compile(r"[^\s,\[\]{}]*").match(self._text, start)
        return self.span(start, word.end() if word else None)

    def tab_before(self, index: int) -> int | None:
        """Give the index of a tab that indents the line of `index` or the line before it."""
        row = bisect_right(self._starts, index) - 1
        for start in self._starts[max(row - 1, 0) : row + 1]:
            indent = re.compile(r" *\t").match(self._text, start)
            if indent:
                return indent.end() - 1
        return None

    def invisible_near(self, index: int) -> tuple[int, OddCharacter] | None:
        """Give an invisible character on the line of `index` or the line before it."""
        row = bisect_right(self._starts, index) - 1
        for start in self._starts[max(row - 1, 0) : row + 1]:
            line = re.split(r"[\r\n]", self._text[start : start + 1000], maxsplit=1)[0]
            odd = find_invisible(line.replace("\t", " "))
            if odd:
                return start + odd.index, odd
        return None


@dataclass(slots=True)
class _Frame:
    """A collection that is still open."""

    is_table: bool
    start: int
    is_flow: bool
    is_refused: bool
    children: list[Node] = field(default_factory=lambda: list[Node]())


class _StopError(Exception):
    """The rest of the text cannot be read; a finding says why."""


def _build(text: str, lines: _Lines, notes: Notes) -> Node | None:
    builder = _Builder(lines, notes)
    try:
        for event in _events(text):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        _explain(error, text, lines, notes)
        return None
    # The pure Python scanner lets these escape from numeric escapes and directives.
    except (yaml.YAMLError, ValueError, OverflowError):
        notes.add("KS001", "this is not valid YAML", Span(1, 1, 2))
        return None
    except _StopError:
        return None
    return builder.root


def _events(text: str) -> Iterator[Any]:
    yield from cast(Any, yaml).parse(text, Loader=LOADER)


class _Builder:
    """Turns parser events into nodes."""

    def __init__(self, lines: _Lines, notes: Notes) -> None:
        self.root: Node | None = None
        self._lines = lines
        self._notes = notes
        self._open: list[_Frame] = []
        self._documents = 0

    def take(self, event: Any) -> None:
        start, end = event.start_mark.index, event.end_mark.index
        if isinstance(event, yaml.DocumentStartEvent):
            self._start_document(self._lines.span(start, end))
        elif isinstance(event, yaml.AliasEvent):
            self._add(self._refuse("aliases are not part of profiles", start))
        elif isinstance(event, yaml.ScalarEvent):
            scalar = Scalar(event.value, not event.style, self._lines.span(start, end))
            is_refused = self._has_extras(event, start)
            self._add(Broken(scalar.span) if is_refused else scalar)
        elif isinstance(event, yaml.CollectionStartEvent):
            self._start_collection(event, start, end)
        elif isinstance(event, yaml.CollectionEndEvent):
            self._end_collection(end)

    def _start_document(self, span: Span) -> None:
        self._documents += 1
        if self._documents > 1:
            self._notes.add("KS002", "a second document starts here; a profile is one", span)
            raise _StopError

    def _start_collection(self, event: Any, start: int, end: int) -> None:
        if len(self._open) >= MAX_DEPTH:
            span = self._lines.span(start, end)
            self._notes.add("KS001", f"nested deeper than {MAX_DEPTH} levels", span)
            raise _StopError
        is_refused = self._has_extras(event, start)
        is_table = isinstance(event, yaml.MappingStartEvent)
        self._open.append(_Frame(is_table, start, bool(event.flow_style), is_refused))

    def _end_collection(self, end: int) -> None:
        frame = self._open.pop()
        # A block collection ends where the next token starts: mark its first character only.
        span = self._lines.span(frame.start, end if frame.is_flow else None)
        if frame.is_refused:
            self._add(Broken(span))
        elif frame.is_table:
            self._add(Table(tuple(self._pairs(frame.children)), span))
        else:
            self._add(Items(tuple(frame.children), span))

    def _pairs(self, children: list[Node]) -> Iterator[tuple[Scalar, Node]]:
        for key, value in zip(children[::2], children[1::2], strict=True):
            if isinstance(key, Broken):
                continue
            if not isinstance(key, Scalar):
                self._notes.add("KS101", "a key must be text, not a collection", key.span)
            elif key.is_plain and key.text == "<<":
                self._notes.add(
                    "KS001", "merge keys are not part of profiles", key.span, help=_USE_EXTENDS
                )
            elif scalar_kind(key) != "str":
                self._notes.add(
                    "KS101",
                    f"a key must be text, not {_NOUNS[scalar_kind(key)]}",
                    key.span,
                    help="put the key in quotes if it is meant",
                )
            else:
                yield key, value

    def _has_extras(self, event: Any, start: int) -> bool:
        """Refuse tags and anchors; say whether the node is lost by it."""
        if event.anchor is not None:
            self._refuse("anchors are not part of profiles", start)
        if event.tag is None:
            return False
        self._notes.add(
            "KS001",
            "tags (!...) are not part of profiles",
            self._lines.word(start),
            help="remove the tag",
        )
        return True

    def _refuse(self, message: str, start: int) -> Broken:
        span = self._lines.word(start)
        self._notes.add("KS001", message, span, help=_USE_EXTENDS)
        return Broken(span)

    def _add(self, node: Node) -> None:
        if self._open:
            self._open[-1].children.append(node)
        else:
            self.root = node


_NOUNS: dict[ScalarKind, str] = {
    "null": "an empty value",
    "bool": "a boolean",
    "int": "a number",
    "float": "a number",
    "str": "text",
}
_USE_EXTENDS = "write the value out, or share it between files with `extends:`"


def _explain(error: yaml.MarkedYAMLError, text: str, lines: _Lines, notes: Notes) -> None:
    """Note what the parser stumbled on, and a pasted blank that may be the cause."""
    mark = error.problem_mark or error.context_mark
    index = min(mark.index if mark else 0, len(text))
    tab = lines.tab_before(index)
    if tab is not None:
        notes.add("KS001", "a tab indents this line", lines.span(tab), help="indent with spaces")
    else:
        at, message, help = _reason(error, text, index)
        notes.add("KS001", message, lines.span(at), help=help)
    near = lines.invisible_near(index)
    if near:
        span = lines.span(near[0])
        mend = _plain(near[1].character, span)
        notes.add("KS006", f"the line holds {near[1]}", span, mend=mend)


def _plain(character: str, span: Span) -> Mend | None:
    plain = plain_for(character)
    return None if plain is None else Mend(span, plain)


def _reason(error: yaml.MarkedYAMLError, text: str, index: int) -> tuple[int, str, str | None]:
    """Give place, sentence and help in our own words; the parser's may quote the text."""
    opened = error.context_mark.index if error.context_mark else index
    if opened < index and not text[index:].strip() and text[opened] in "'\"[{":
        return opened, f"this {text[opened]} is never closed", None
    reference = text.find("${", max(index - 1, 0), index + 2)
    if reference >= 0:
        message = "${NAME} inside { } or [ ] needs quotes around the whole value"
        return reference, message, 'write "${NAME}"'
    if "mapping values are not allowed" in (error.problem or ""):
        help = (
            "quote a value that holds ': ', check the indentation, and write a space after each "
            "':' of the line before"
        )
        return index, "a ':' cannot stand here", help
    if text[index : index + 1] in tuple("@`%"):
        return index, f"a value cannot start with {text[index]}", "put the value in quotes"
    help = "check indentation, quotes and brackets of this line and the one before"
    return index, "this is not valid YAML", help
