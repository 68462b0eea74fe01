"""Numbers that are not written in plain decimal digits: what readers make of them, and how to
write them so that all agree.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .yaml_nodes import Scalar, is_old_number

# A person reads no more digits than these, and no setting has as many.
_LONGEST = 20
_BASES = {"0b": 2, "0o": 8, "0x": 16}
_BASED = re.compile(r"[-+]?0(b[01_]+|o[0-7]+|x[0-9a-fA-F_]+)")
_EXPONENT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+")
# YAML 1.1 wants both the point and the sign.
_OLD_EXPONENT = re.compile(r"[-+]?[0-9]*\.[0-9]*[eE][-+][0-9]+")
_GROUPED = re.compile(r"[-+]?(0|[1-9][0-9_]*)(\.[0-9_]*)?")


@dataclass(frozen=True, slots=True)
class OddNumber:
    """A spelling that readers disagree about.

    `decimal` is the number in plain digits where all who see a number see the same one, "" where
    they do not. `is_taken` tells that YAML 1.2 is plain about it, so that it counts as it stands.
    """

    message: str
    decimal: str
    is_taken: bool


def odd_number(scalar: Scalar, *, is_whole: bool) -> OddNumber | None:
    """Judge the spelling of a number; None for plain digits, and for what is no number."""
    text = scalar.text
    if not scalar.is_plain:
        return None
    if re.fullmatch(r"0x[0-9a-fA-F]+", text):
        decimal = _decimal(text)
        said = f"{text} is hexadecimal, which some readers take for text"
        return OddNumber(said, decimal, is_taken=True) if decimal else None
    if is_old_number(scalar) or (text.startswith("0o") and _BASED.fullmatch(text)):
        return OddNumber("", _decimal(text), is_taken=False)
    if not _EXPONENT.fullmatch(text) or (_OLD_EXPONENT.fullmatch(text) and not is_whole):
        return None
    decimal = _decimal(text)
    if not is_whole and decimal:
        return OddNumber(f"{text} is text in YAML 1.1", decimal, is_taken=True)
    # With a fraction it is no whole number to anybody.
    return OddNumber("", decimal, is_taken=False) if decimal.lstrip("-").isdecimal() else None


def _decimal(text: str) -> str:
    """Write a number in plain digits, "" where readers disagree or it would be too long."""
    if len(text) > _LONGEST:
        return ""
    if _BASED.fullmatch(text):
        sign = "-" if text[0] == "-" else ""
        word = text.lstrip("-+")
        digits = word[2:].replace("_", "")
        return f"{sign}{int(digits, _BASES[word[:2]])}" if digits else ""
    if _EXPONENT.fullmatch(text):
        from decimal import Decimal  # slow to load, and hardly anybody writes an exponent

        number = Decimal(text)
        if not -_LONGEST < number.adjusted() < _LONGEST:
            return ""
        return f"{number.to_integral_value() if number == int(number) else number:f}"
    return text.replace("_", "").lstrip("+") if _GROUPED.fullmatch(text) else ""
