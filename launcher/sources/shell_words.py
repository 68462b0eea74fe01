"""Takes apart what was written as one shell line, and replaces it where it stands."""

from __future__ import annotations

import re
import shlex
from typing import Literal

from kimi_serve.schemas.findings import Edit, Fix
from kimi_serve.schemas.provenance import Origin

_OPEN = {"{": "}", "[": "]"}


def is_several(text: str) -> bool:
    """Tell whether a text is a flag with more behind a blank."""
    return re.match(r"-{1,2}[A-Za-z][\w.-]*(=\S*)?\s+\S", text) is not None


def is_shells(text: str) -> bool:
    """Tell whether only a shell could say what the words of a text are.

    It has variables, homes, pipes or escapes, an open quote, or is a whole command.
    """
    if re.search(r"[$;|&><`~\\]", text) or not text.lstrip().startswith("-"):
        return True
    try:
        shlex.split(text)
    except ValueError:
        return True
    return False


def split_words(text: str) -> list[str]:
    """Split at blanks that are outside of quotes, braces and brackets.

    Quotes around a whole word are taken off, quotes inside JSON stay: that is what was meant,
    and a shell would have lost them.
    """
    words: list[str] = []
    word, closing, quote = "", list[str](), ""
    for character in text:
        if character.isspace() and not closing and not quote:
            words += [word] if word else []
            word = ""
            continue
        word += character
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"" and (not closing or character == '"'):
            quote = character
        elif character in _OPEN:
            closing.append(_OPEN[character])
        elif closing and character == closing[-1]:
            closing.pop()
    words += [word] if word else []
    return [_unquoted(word) for word in words]


def _unquoted(word: str) -> str:
    is_quoted = len(word) > 1 and word[0] == word[-1] and word[0] in "'\""
    return word[1:-1] if is_quoted else word


def replace_fix(
    origin: Origin, written: str, text: str, applicability: Literal["safe", "unsafe"]
) -> Fix | None:
    """Write `text` where a scalar stands; None where that is not one whole word of a file."""
    if origin.kind != "profile" or not (origin.line and origin.column and origin.end_column):
        return None
    # Without quotes, or with two: an escape or a second line would make the lengths differ.
    if origin.end_column - origin.column not in (len(written), len(written) + 2):
        return None
    edit = Edit(origin.name, origin.line, origin.column, origin.end_column, text)
    return Fix(applicability, (edit,))
