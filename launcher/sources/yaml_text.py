"""Writes texts as scalars of YAML that every reader, of 1.1 and of 1.2, takes for these texts."""

from __future__ import annotations

import re
from collections.abc import Iterable

from .layers import Span
from .yaml_nodes import Scalar, is_old_number, old_bool, scalar_kind

# Words that no reader of YAML, old or new, takes for anything but text.
_PLAIN = re.compile(r"(--?[A-Za-z]|\.{0,2}/|[A-Za-z])[\w./:@+-]*(?<!:)", re.ASCII)


def scalar(text: str) -> str:
    """Write a text as it is where that is safe, in quotes where it is not."""
    whole = Scalar(text, True, Span(1, 1, 2))
    is_text = scalar_kind(whole) == "str" and old_bool(whole) is None and not is_old_number(whole)
    return text if is_text and _PLAIN.fullmatch(text) else quoted(text)


def quoted(text: str) -> str:
    """Write a text in quotes on one line: JSON in single ones, all else in double ones."""
    if '"' in text and text.isprintable():
        return "'" + text.replace("'", "''") + "'"
    return f'"{"".join(map(_escaped, text))}"'


def flow_list(texts: Iterable[str]) -> str:
    """Write a list of texts on one line, each in quotes."""
    return f"[{', '.join(map(quoted, texts))}]"


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    if character.isprintable():
        return character
    number = ord(character)
    if number <= 0xFF:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"
