"""Secrets that are known by their value, and found wherever a text repeats one."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

from kimi_serve.schemas.fields import sections, setting_fields

from ..sources.characters import bare, printable, shown
from .names import WORDS
from .shapes import Range, cover, mask, merged

# A shorter one is found by trying; hiding each "1" or "no" of a report would hide the report and
# show what the secret is.
_SHORTEST: Final = 4
# A shorter one is part of ordinary words by accident: it counts where it stands alone.
_SHORTEST_INSIDE: Final = 8
_CUT: Final = re.compile(r"['\"]?\.\.\.")
_LONGEST_SHOWN: Final = 80


class Known:
    """A set of secrets; `hide` covers them in any text, in each spelling that messages use."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self.values = frozenset(value for text in values if _is_telling(value := text.strip()))
        spelt = {form for value in self.values for form in _spellings(value)}
        self._spelt = frozenset(spelt)
        self._cuts = {form[:end] for form in spelt for end in range(_SHORTEST, _LONGEST_SHOWN)}
        # By how a secret begins, how long it may be: many may begin alike.
        self._lengths: dict[str, list[int]] = {}
        for start, length in sorted({(form[:_SHORTEST], len(form)) for form in spelt}):
            self._lengths.setdefault(start, []).insert(0, length)

    def __bool__(self) -> bool:
        return bool(self.values)

    def __or__(self, other: Known) -> Known:
        return Known(self.values | other.values)

    def ranges(self, text: str) -> list[Range]:
        """Give where a text repeats a secret."""
        return merged([*self._whole(text), *self._cut(text)]) if self.values else []

    def hide(self, text: str) -> str:
        """Cover the secrets in a text, and what looks like one."""
        return mask(cover(text, self.ranges(text)))

    def _whole(self, text: str) -> Iterator[Range]:
        index = 0
        while index <= len(text) - _SHORTEST:
            for length in self._lengths.get(text[index : index + _SHORTEST], ()):
                form = text[index : index + length]
                if form in self._spelt and _stands_alone(text, index, form):
                    yield index, index + length
                    index += length - 1
                    break
            index += 1

    def _cut(self, text: str) -> Iterator[Range]:
        """Find the beginning of a secret where a message cuts a long text off."""
        for match in _CUT.finditer(text):
            end = match.start()
            for start in range(max(0, end - _LONGEST_SHOWN), end - _SHORTEST + 1):
                if text[start:end] in self._cuts:
                    yield start, end
                    break


def _stands_alone(text: str, index: int, form: str) -> bool:
    if len(form) >= _SHORTEST_INSIDE:
        return True
    around = text[index - 1 : index] + text[index + len(form) : index + len(form) + 1]
    return not any(character.isalnum() or character == "_" for character in around)


def _is_telling(value: str) -> bool:
    """Say whether a value can be covered: it is none of the words that all reports hold."""
    return len(value) >= _SHORTEST and value.casefold() not in _own_words()


def _spellings(text: str) -> set[str]:
    whole = {text, repr(text)[1:-1], printable(text), json.dumps(text)[1:-1], bare(text)}
    whole |= {json.dumps(bare(text))[1:-1], shlex.quote(text).strip("'")}
    whole.add(re.sub(r"\W", "_", text).upper())  # a variable that is named for it
    cut = {text[:_LONGEST_SHOWN], shown(text).removesuffix("...")[1:-1]}
    return {form for form in whole | cut if len(form) >= _SHORTEST}


@lru_cache(maxsize=1)
def _own_words() -> frozenset[str]:
    """Give the words of the schema and of its defaults: no secret, whoever uses one as such."""
    words = {"true", "false", "null", "none", "auto", "default", "file", "env:", "file:"}
    words |= {"empty", "value", "name", "kimi-serve", *sections()}
    for path, field in setting_fields().items():
        words |= {path, field.name, field.flag, field.flag.lstrip("-"), field.env_name}
        words |= {*field.choices, str(field.default)}
    words |= {word for text in tuple(words) for word in re.findall(r"[A-Za-z]+", text)}
    return frozenset(word.casefold() for word in words | WORDS)
