"""The nodes of a YAML tree, and what a plain scalar means in YAML 1.2 and in YAML 1.1."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from .layers import Span

ScalarKind = Literal["null", "bool", "int", "float", "str"]


@dataclass(frozen=True, slots=True)
class Scalar:
    text: str
    is_plain: bool
    span: Span


@dataclass(frozen=True, slots=True)
class Items:
    """A sequence."""

    items: tuple[Node, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Table:
    """A mapping; a key that is written twice is there twice."""

    entries: tuple[tuple[Scalar, Node], ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Broken:
    """Something that was refused already: readers pass over it in silence."""

    span: Span


Node = Scalar | Items | Table | Broken


_NULL = re.compile(r"null|Null|NULL|~|")
_BOOL = re.compile(r"true|True|TRUE|false|False|FALSE")
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(
    r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)
_OLD_BOOL = re.compile(r"(?P<true>y|Y|yes|Yes|YES|on|On|ON)|n|N|no|No|NO|off|Off|OFF")
# Types of YAML 1.1 that 1.2 dropped: they are texts to it.
_OLD_DATE = (
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt]|[ \t]+)[0-9]{1,2}:[0-9]{2}:[0-9]{2}(\.[0-9]*)?"
    r"([ \t]*(Z|[-+][0-9]{1,2}(:?[0-9]{2})?))?"
)
_OLD_SIGNS = {"=": "the sign of a default", "<<": "the sign of a merge"}
_OLD_NUMBER = re.compile(
    r"[-+]?0[0-9_]+|[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?"
    r"|[-+]?[0-9]+_[0-9_]*(\.[0-9_]*)?|[-+]?0b[01_]+|[-+]?0x[0-9a-fA-F]*_[0-9a-fA-F_]*"
    r"|[-+]0x[0-9a-fA-F]+"
)


def scalar_kind(scalar: Scalar) -> ScalarKind:
    """Resolve by the core schema of YAML 1.2; only plain scalars are anything but text."""
    if not scalar.is_plain:
        return "str"
    text = scalar.text
    if _NULL.fullmatch(text):
        return "null"
    if _BOOL.fullmatch(text):
        return "bool"
    if _INT.fullmatch(text):
        return "int"
    return "float" if _FLOAT.fullmatch(text) else "str"


def bool_value(text: str) -> bool:
    """Give the value of a scalar of kind bool."""
    return text.lower() == "true"


def int_value(text: str) -> int:
    """Give the value of a scalar of kind int; ValueError when it has thousands of digits."""
    prefixes = {"0o": 8, "0x": 16}
    return int(text, prefixes.get(text[:2], 10))


def float_value(text: str) -> float:
    """Give the value of a scalar of kind int or float."""
    return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))


def old_bool(scalar: Scalar) -> bool | None:
    """Give what a YAML 1.1 reader makes of yes, no, on, off, y, n; None for all else."""
    match = _OLD_BOOL.fullmatch(scalar.text) if scalar.is_plain else None
    return bool(match["true"]) if match else None


def old_meaning(scalar: Scalar) -> str:
    """Say what else than text a YAML 1.1 reader makes of a text, "" for nothing."""
    if not scalar.is_plain:
        return ""
    text = scalar.text
    if text[:4].isdigit() and text[4:5] == "-" and re.fullmatch(_OLD_DATE, text):
        return "a date"
    return _OLD_SIGNS.get(text, "")


def is_old_number(scalar: Scalar) -> bool:
    """Say whether a YAML 1.1 reader takes this for another number (010, 1:20, 1_000, 0b1)."""
    return scalar.is_plain and bool(_OLD_NUMBER.fullmatch(scalar.text))
