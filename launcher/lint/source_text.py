"""The text of one profile as its readers see it: lines, comments, and where secrets stand."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, cast

import yaml

from ..sources.yaml_tree import MAX_BYTES
from .secret_words import (
    assigns_secret,
    begins_like_flag,
    begins_secret_flag,
    is_secret_name,
    login_in,
)

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_LINE_END = re.compile(r"\r\n|\r|\n")
# `{env: NAME}` and `{file: PATH}`: names where a secret is, and is none. Also null and "".
_REFERENCE = re.compile(
    r"\{?\s*(env:\s*[\"']?[A-Z_][A-Z0-9_]*[\"']?|file:\s*[\"']?[\w.~-]*(/[\w.-]+)+[\"']?)\s*\}?"
    r"|null|~|\"\"|''|"
)
HIDDEN: Final = "***"


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

    `comments` is None for a text that the YAML scanner gives up on.
    """

    text: str
    starts: tuple[int, ...]
    comments: tuple[Comment, ...] | None
    secrets: tuple[tuple[int, int], ...]

    @classmethod
    def read(cls, data: bytes) -> SourceText:
        """Decode and scan; what is not UTF-8 is replaced, the reader has said so already."""
        text = data[: MAX_BYTES + 1].decode("utf-8", "replace").removeprefix("\ufeff")
        starts = (0, *(match.end() for match in _LINE_END.finditer(text)))
        try:
            comments = tuple(_comments(text, starts))
            secrets = tuple(sorted([*_secrets(text), *_told(comments, starts)]))
        # The pure Python scanner lets the latter two escape.
        except (yaml.YAMLError, ValueError, OverflowError):
            return cls(text, starts, None, ())
        return cls(text, starts, comments, secrets)

    @classmethod
    def read_plain(cls, data: bytes) -> SourceText:
        """Decode a text that is no YAML; its lines are never shown."""
        text = data.decode("utf-8", "replace").removeprefix("\ufeff")
        starts = (0, *(match.end() for match in _LINE_END.finditer(text)))
        return cls(text, starts, None, ())

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
        start, end = self.starts[number - 1], self.starts[number - 1] + len(self.line(number))
        for first, last in self.secrets:
            if first < end and last > start:
                yield max(first, start) - start + 1, min(last, end) - start + 1

    def masked(self, number: int) -> str:
        """Give a line with secrets as "***"."""
        line = self.line(number)
        for first, last in reversed(list(self.hidden_columns(number))):
            line = f"{line[: first - 1]}{HIDDEN}{line[last - 1 :]}"
        return line

    @property
    def may_be_shown(self) -> bool:
        """Whether lines may be repeated: where secrets stand is known, or there is no sign of any.

        A text that cannot be scanned may hold one anywhere.
        """
        if self.comments is not None:
            return True
        return not login_in(self.text) and not is_secret_name(re.sub(r"\W", "-", self.text))


def position(starts: tuple[int, ...], index: int) -> tuple[int, int]:
    """Give line and column, both 1-based, of an index."""
    row = bisect_right(starts, index) - 1
    return row + 1, index - starts[row] + 1


def _secrets(text: str) -> Iterator[tuple[int, int]]:
    for start, end in _secret_ranges(text):
        if not _REFERENCE.fullmatch(text[start:end].strip()):
            yield start, end


def _told(comments: tuple[Comment, ...], starts: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """Give comments that may hold a secret."""
    for comment in comments:
        if login_in(comment.text) or is_secret_name(comment.text.partition("=")[0].strip("# :")):
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
    for token in cast(Any, yaml).scan(text, Loader=_LOADER):
        if not isinstance(token, yaml.ScalarToken):
            continue
        start, end = token.start_mark.index, token.end_mark.index
        if cast(Any, token).style in ("|", ">"):
            # A comment may follow the indicator, on its own line.
            match = _LINE_END.search(text, start)
            start = match.start() if match else end
        yield start, end


@dataclass(slots=True)
class _Frame:
    """A collection that is open: what its next node is, and where a secret in it began."""

    is_table: bool
    is_secret: bool
    start: int
    is_key: bool = True
    key: str = ""


def _secret_ranges(text: str) -> Iterator[tuple[int, int]]:
    """Give the values of names that sound like secrets, and texts that look like one."""
    frames: list[_Frame] = []
    for event in cast(Any, yaml).parse(text, Loader=_LOADER):
        start, end = event.start_mark.index, event.end_mark.index
        if isinstance(event, yaml.CollectionEndEvent):
            frame = frames.pop()
            if frame.is_secret:
                yield frame.start, end
            _step(frames, "")
        elif isinstance(event, yaml.ScalarEvent | yaml.AliasEvent):
            value = str(getattr(event, "value", ""))
            if _is_secret_here(frames) or login_in(value) or assigns_secret(value):
                yield start, end
            _step(frames, value)
        elif isinstance(event, yaml.CollectionStartEvent):
            is_table = isinstance(event, yaml.MappingStartEvent)
            is_secret = _is_secret_here(frames)
            frames.append(_Frame(is_table, is_secret, start))


def _is_key(frames: list[_Frame]) -> bool:
    return bool(frames) and frames[-1].is_table and frames[-1].is_key


def _is_secret_here(frames: list[_Frame]) -> bool:
    if not frames or _is_key(frames):
        return False
    key = frames[-1].key
    if is_secret_name(key) or begins_secret_flag(key):
        return True
    # `- {name: HF_TOKEN, value: X}`, as Kubernetes writes variables.
    return key == "value" and len(frames) > 1 and not frames[-2].is_table


def _step(frames: list[_Frame], text: str) -> None:
    """Go on to the next node: in a table keys and values take turns, in a list `--flag` rules."""
    if not frames:
        return
    frame = frames[-1]
    if frame.is_table:
        frame.key = text if frame.is_key else ""
        frame.is_key = not frame.is_key
    else:
        frame.key = text if begins_like_flag(text) else ""
