"""A key and its value that a pasted blank glues together: to YAML they are one text."""

from __future__ import annotations

import re

from .characters import find_odd, is_invisible, plain_for
from .layers import Mend, Notes, Span
from .yaml_nodes import Scalar

_KEY = r"[A-Za-z_][\w.-]*:(?=.)"


def note_glued(node: Scalar, path: str, notes: Notes) -> bool:
    """Note a pasted blank behind a colon (KS006); say whether there was one."""
    match = re.match(_KEY, node.text) if node.is_plain else None
    if match is None or not is_invisible(node.text[match.end()]):
        return False
    index = match.end()
    odd = find_odd(node.text)
    subject = f"`{path}`: " if path else ""
    notes.add(
        "KS006",
        f"{subject}what stands behind `{match[0]}` begins with {odd}: to YAML key and value are "
        "one text",
        node.span,
        path=path,
        help="write an ordinary space behind the colon",
        mend=_spaced(node, index),
    )
    return True


def _spaced(node: Scalar, index: int) -> Mend | None:
    """Write one space for the pasted blanks; None for what is not written as it is read."""
    if node.span.end_column - node.span.column != len(node.text):
        return None
    end = index
    while end < len(node.text) and is_invisible(node.text[end]):
        if plain_for(node.text[end]) is None:
            return None
        end += 1
    column = node.span.column
    return Mend(Span(node.span.line, column + index, column + end), " ")
