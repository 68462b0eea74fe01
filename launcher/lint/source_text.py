"""The text of one profile as its readers see it: lines, comments, and where secrets stand."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, cast

import yaml

from ..secrets.known import Known
from ..secrets.names import is_secret_name
from ..secrets.places import find_places
from ..secrets.shapes import Range, cover, merged, parts_of, secrets_in, shaped_in
from ..sources.yaml_loader import LOADER
from ..sources.yaml_tree import MAX_BYTES

_LINE_END = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment with its `#`: 1-based line and column; `is_alone` when nothing stands before it."""

    line: int
    column: int
    text: str
    is_alone: bool


@dataclass(frozen=True, slots=True)
class SourceText:
    """A text without its byte order mark; `secrets` are ranges of indexes, in order.

    `comments` is None for a text that the YAML scanner gives up on. `values` are the secrets that
    stand here, `known` those that must not be shown, from wherever they are known; `respelt` and
    `variables` are those of `Places`.
    """

    text: str
    starts: tuple[int, ...]
    comments: tuple[Comment, ...] | None
    secrets: tuple[Range, ...]
    values: frozenset[str] = frozenset()
    known: Known = field(default_factory=Known)
    respelt: tuple[tuple[int, int, str], ...] = ()
    variables: frozenset[str] = frozenset()

    @classmethod
    def read(cls, data: bytes) -> SourceText:
        """Decode and scan; what is not UTF-8 is replaced, the reader has said so already."""
        text = data[: MAX_BYTES + 1].decode("utf-8", "replace").removeprefix("\ufeff")
        starts = (0, *(match.end() for match in _LINE_END.finditer(text)))
        try:
            comments = tuple(_comments(text, starts))
            places = find_places(text)
        # The pure Python scanner lets the latter two escape.
        except (yaml.YAMLError, ValueError, OverflowError):
            return cls(
                text, starts, None, tuple(merged(shaped_in(text))), frozenset(parts_of(text))
            )
        secrets = tuple(merged([*places.ranges, *_told(comments, starts)]))
        source = cls(text, starts, comments, secrets, places.values)
        return replace(source, respelt=places.respelt, variables=places.variables)

    @classmethod
    def read_plain(cls, data: bytes) -> SourceText:
        """Decode a text that is no YAML; its lines are never shown."""
        text = data.decode("utf-8", "replace").removeprefix("\ufeff")
        starts = (0, *(match.end() for match in _LINE_END.finditer(text)))
        return cls(text, starts, None, tuple(merged(shaped_in(text))))

    def hiding(self, known: Known) -> SourceText:
        """Give the text with secrets that are known from elsewhere, or from another place in it."""
        known = self.known | known
        again = [(start, end) for start, end, value in self.respelt if known.ranges(value)]
        return replace(self, known=known, secrets=tuple(merged([*self.secrets, *again])))

    def line(self, number: int) -> str:
        """Give a line (1-based) without its end, "" beyond the last."""
        if not 1 <= number <= len(self.starts):
            return ""
        start = self.starts[number - 1]
        match = _LINE_END.search(self.text, start)
        return self.text[start : match.start() if match else len(self.text)]

    def piece(self, line: int, column: int, end_column: int) -> str:
        """Give what stands between two columns of a line."""
        return self.line(line)[column - 1 : end_column - 1]

    def hidden_columns(self, number: int) -> Iterator[tuple[int, int]]:
        """Give the columns of a line that hold a secret: 1-based, end exclusive."""
        for first, last in self._hidden(number):
            yield first + 1, last + 1

    def masked(self, number: int) -> str:
        """Give a line with secrets as "***"."""
        return cover(self.line(number), self._hidden(number))

    def _hidden(self, number: int) -> list[Range]:
        line = self.line(number)
        start, end = self.starts[number - 1], self.starts[number - 1] + len(line)
        here = [
            (max(first, start) - start, min(last, end) - start)
            for first, last in self.secrets
            if first < end and last > start
        ]
        return merged([*here, *self.known.ranges(line)])

    @property
    def may_be_shown(self) -> bool:
        """Whether lines may be repeated: where secrets stand is known, or there is no sign of any.

        A text that cannot be scanned may hold one anywhere.
        """
        if self.comments is not None:
            return True
        return not self.secrets and not is_secret_name(self.text)


def position(starts: tuple[int, ...], index: int) -> tuple[int, int]:
    """Give line and column, both 1-based, of an index."""
    row = bisect_right(starts, index) - 1
    return row + 1, index - starts[row] + 1


def _told(comments: tuple[Comment, ...], starts: tuple[int, ...]) -> Iterator[Range]:
    """Give comments that may hold a secret."""
    for comment in comments:
        name = comment.text.partition("=")[0].strip("# :")
        if secrets_in(comment.text) or is_secret_name(name):
            start = starts[comment.line - 1] + comment.column - 1
            yield start, start + len(comment.text)


def _comments(text: str, starts: tuple[int, ...]) -> Iterator[Comment]:
    taken = list(_scalar_ranges(text))
    row = 0
    for match in re.finditer(r"#[^\r\n]*", text):
        index = match.start()
        while row < len(taken) and taken[row][1] <= index:
            row += 1
        if row < len(taken) and taken[row][0] <= index:
            yield from _after_scalar(text, starts, match, taken[row])
            continue
        yield from _comment(text, starts, index, match.end())


def _after_scalar(
    text: str, starts: tuple[int, ...], match: re.Match[str], taken: tuple[int, int]
) -> Iterator[Comment]:
    """Give a comment that begins behind a scalar although another `#` stands inside it."""
    if taken[1] < match.end():
        inner = text.find("#", taken[1], match.end())
        if inner >= 0:
            yield from _comment(text, starts, inner, match.end())


def _comment(text: str, starts: tuple[int, ...], index: int, end: int) -> Iterator[Comment]:
    if index and text[index - 1] not in " \t\r\n\ufeff":
        return
    line, column = position(starts, index)
    before = text[index - column + 1 : index]
    yield Comment(line, column, text[index:end], not before.strip())


def _scalar_ranges(text: str) -> Iterator[tuple[int, int]]:
    for token in cast(Any, yaml).scan(text, Loader=LOADER):
        if not isinstance(token, yaml.ScalarToken):
            continue
        start, end = token.start_mark.index, token.end_mark.index
        if cast(Any, token).style in ("|", ">"):
            # A comment may follow the indicator, on its own line.
            match = _LINE_END.search(text, start)
            start = match.start() if match else end
        yield start, end
