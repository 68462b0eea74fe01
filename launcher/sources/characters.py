"""Characters that look like something else, or like nothing, and text that is safe to print."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

_QUOTES = frozenset("\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u201f\u2032\u2033\u00ab\u00bb")
_DASHES = frozenset("\u2010\u2011\u2012\u2013\u2014\u2015\u2043\u2212\ufe58\ufe63\uff0d")
# Letters by category, but drawn as nothing.
_BLANKS = frozenset("\u115f\u1160\u2800\u3164\uffa0")
# YAML 1.1 ends a line here, YAML 1.2 does not: what follows is a comment to one and not the other.
OLD_BREAKS = "\x85\u2028\u2029"
_SHOWN_LENGTH = 80


@dataclass(frozen=True, slots=True)
class OddCharacter:
    """A character that was pasted rather than meant; `index` counts code points from 0."""

    character: str
    index: int

    def __str__(self) -> str:
        name = unicodedata.name(self.character, "control character").lower()
        return f"U+{ord(self.character):04X} ({name}) at index {self.index}"


def is_invisible(character: str) -> bool:
    """Say whether a reader sees nothing, or a plain space, where `character` stands."""
    if character == " ":
        return False
    if character in _BLANKS:
        return True
    return unicodedata.category(character) in ("Zs", "Zl", "Zp", "Cf", "Cc")


def is_dash(character: str) -> bool:
    """Say whether `character` is drawn like an ASCII hyphen and is none."""
    return character in _DASHES


def is_look_alike(character: str) -> bool:
    """Say whether `character` passes for an ASCII quote, dash, letter or digit and is none."""
    return character in _QUOTES or character in _DASHES or "\uff01" <= character <= "\uff5e"


def plain_for(character: str) -> str | None:
    """Give what an odd character was most likely meant to be; None for a quote or a letter.

    A quote cannot be replaced alone: it may stand for one that delimits. Nor can a line break that
    not every reader sees: whether the text goes on is for people to say.
    """
    if character in _DASHES:
        return "-"
    if character in OLD_BREAKS:
        return None
    if character in _QUOTES or "\uff01" <= character <= "\uff5e" or character in _BLANKS:
        return None
    return " " if unicodedata.category(character) == "Zs" else ""


def find_odd(text: str) -> OddCharacter | None:
    """Give the first invisible or look-alike character of a text that should be a plain word."""
    for index, character in enumerate(text):
        if is_look_alike(character) or is_invisible(character):
            return OddCharacter(character, index)
    return None


def find_odd_in_prose(text: str) -> OddCharacter | None:
    """Give the first character that does harm even in free text.

    Inside free text typographic dashes and quotes are legitimate; a quote around all of it or a
    dash in front of it was meant as ASCII. Line breaks and tabs are legitimate too.
    """
    for index, character in enumerate(text):
        if character not in "\n\t" and is_invisible(character):
            return OddCharacter(character, index)
    if text and (text[0] in _DASHES or (text[0] in _QUOTES and text[-1] in _QUOTES)):
        return OddCharacter(text[0], 0)
    return None


def find_invisible(text: str) -> OddCharacter | None:
    """Give the first invisible character."""
    for index, character in enumerate(text):
        if is_invisible(character):
            return OddCharacter(character, index)
    return None


def shown(text: str) -> str:
    """Quote `text` for a message: one line, printable, not too long."""
    if len(text) > _SHOWN_LENGTH:
        return f"{text[:_SHOWN_LENGTH]!r}..."
    return repr(text)  # escapes all that cannot be printed, also unpaired surrogates


def printable(name: str) -> str:
    """Give `name` with everything escaped that a terminal would act on or could not encode."""
    if name.isprintable():
        return name
    return "".join(
        character if character.isprintable() else repr(character)[1:-1] for character in name
    )


def bare(text: str) -> str:
    """Give `text` for a message without quotes around it: printable, not too long."""
    if len(text) > _SHOWN_LENGTH:
        return f"{printable(text[:_SHOWN_LENGTH])}..."
    return printable(text)
