"""Where secrets stand in the text of a YAML file, and which they are."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, cast

import yaml

from ..sources.yaml_loader import LOADER
from .names import (
    begins_like_flag,
    is_next_flag,
    is_secret_flag,
    is_secret_name,
    meant_variable,
    takes_several,
)
from .shapes import Range, parts_of, shaped_in, spelt_parts
from .trees import secrets_of

# `{env: NAME}`, `{file: PATH}` and `${NAME}`: name where a secret is, and are none. Also null, "".
_REFERENCE = re.compile(
    r"\{?\s*(env:\s*[\"']?(?P<env>[A-Z_][A-Z0-9_]*)[\"']?"
    r"|file:\s*[\"']?[\w.~-]*(/[\w.-]+)+[\"']?)\s*\}?"
    r"|[\"']?\$\{(?P<text>[A-Z_][A-Z0-9_]*)\}[\"']?|null|~|true|false|\"\"|''|"
)
# A name that is written as no name is: `{env: "${NAME}"}`, which the reader refuses.
_ODD_REFERENCE = r"\{?\s*env:\s*[\"']?(?P<env>[^\"'\n]*?)[\"']?\s*\}?"
_COMMENT = re.compile(r"(?:^|(?<=\s))#[^\r\n]*")


@dataclass(frozen=True, slots=True)
class Places:
    """Ranges of indexes that must not be shown, and the secrets of the text.

    `respelt` are the scalars that are not written as they are read, with what they are read as;
    `variables` those that the text takes secrets from.
    """

    ranges: tuple[Range, ...] = ()
    values: frozenset[str] = frozenset()
    respelt: tuple[tuple[int, int, str], ...] = ()
    variables: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Frame:
    """A collection that is open: what its next node is, and where a secret in it began."""

    is_table: bool
    is_secret: bool
    start: int
    is_key: bool = True
    key: str = ""
    values: set[str] = field(default_factory=lambda: set[str]())


def find_places(text: str) -> Places:
    """Find the values of names that sound like secrets, and texts that look like one.

    Raises what YAML raises for a text that cannot be parsed.
    """
    walk = _Walk(text)
    for event in cast(Any, yaml).parse(text, Loader=LOADER):
        walk.take(event)
    shaped = list(shaped_in(text))
    for start, end in shaped:
        walk.values |= {*spelt_parts(text[start:end], is_login=text[:start].endswith("://"))}
    for comment in _COMMENT.findall(text):
        walk.values |= {*parts_of(comment)}
    ranges = (*walk.ranges, *shaped)
    values, variables = frozenset(walk.values), frozenset(walk.variables)
    return Places(ranges, values, tuple(walk.respelt), variables)


class _Walk:
    """Goes through the events of a text."""

    def __init__(self, text: str) -> None:
        self.ranges: list[Range] = []
        self.values: set[str] = set()
        self.variables: set[str] = set()
        self.respelt: list[tuple[int, int, str]] = []
        self._text = text
        self._frames: list[_Frame] = []

    def take(self, event: Any) -> None:
        start, end = event.start_mark.index, event.end_mark.index
        if isinstance(event, yaml.CollectionEndEvent):
            frame = self._frames.pop()
            if frame.is_secret and not self._is_reference(frame.start, end):
                self.ranges.append((frame.start, end))
                self._know(frame.values)
            self._step("")
        elif isinstance(event, yaml.ScalarEvent | yaml.AliasEvent):
            value = str(getattr(event, "value", ""))
            # Under the name of a secret that begins like one of YAML's own signs it is read as one.
            marks = {
                str(mark).strip("!") for mark in (event.anchor, getattr(event, "tag", "")) if mark
            }
            self._scalar(start, end, value, marks)
            self._step(value)
        elif isinstance(event, yaml.CollectionStartEvent):
            is_table = isinstance(event, yaml.MappingStartEvent)
            self._frames.append(_Frame(is_table, self._is_secret_here(""), start))

    def _scalar(self, start: int, end: int, value: str, marks: set[str]) -> None:
        found = secrets_of(value)
        if value and value not in self._text[start:end]:
            self.respelt.append((start, end, value))
        is_secret = self._is_secret_here(value) and not self._is_reference(start, end)
        if is_secret or found:
            self.ranges.append((start, end))
        if is_secret or self._is_inside_secret():
            # Of `{X}`, which is a key without a value, the key is what was meant.
            told = self._frames[-1].key if not value else "" if self._is_key() else value
            found |= {*spelt_parts(told), *marks}
        self._know(found)

    def _know(self, values: set[str]) -> None:
        """Keep what is secret; inside of a secret collection that is known at its end."""
        outer = next((frame for frame in self._frames if frame.is_secret), None)
        if outer is None:
            self.values |= values
        else:
            outer.values |= values

    def _is_reference(self, start: int, end: int) -> bool:
        text = self._text[start:end].strip()
        match = _REFERENCE.fullmatch(text)
        if match is not None:
            self.variables |= {name for name in (match["env"], match["text"]) if name}
            return True
        odd = re.fullmatch(_ODD_REFERENCE, text) if "env:" in text else None
        return odd is not None and bool(meant_variable(odd["env"]))

    def _is_inside_secret(self) -> bool:
        return any(frame.is_secret for frame in self._frames)

    def _is_key(self) -> bool:
        return bool(self._frames) and self._frames[-1].is_table and self._frames[-1].is_key

    def _is_secret_here(self, value: str) -> bool:
        if not self._frames or self._is_key():
            return False
        frame = self._frames[-1]
        if not frame.is_table and is_next_flag(value):
            return False
        if is_secret_flag(frame.key) or (frame.is_table and is_secret_name(frame.key)):
            return True
        # `- {name: HF_TOKEN, value: X}`, as Kubernetes writes variables.
        frames = self._frames
        return frame.key == "value" and len(frames) > 1 and not frames[-2].is_table

    def _step(self, text: str) -> None:
        """Go on to the next node: in a table keys and values take turns, in a list `--flag`."""
        if not self._frames:
            return
        frame = self._frames[-1]
        if frame.is_table:
            frame.key = text if frame.is_key else ""
            frame.is_key = not frame.is_key
        elif begins_like_flag(text):
            frame.key = text
        elif not takes_several(frame.key):
            frame.key = ""
