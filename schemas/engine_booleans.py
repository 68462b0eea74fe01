"""What the engines' boolean parsers make of a text.

The kinds are those of the engine tables. Some are named after a parser, the others spell theirs
out: `strip lower in (1, true)` is true for two words and false for everything else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Literal

# "default": the engine keeps its built-in value, which may be true, with a warning at most.
# "crash": the engine dies of it, or fails wherever it first looks.
BooleanOutcome = bool | Literal["default", "crash"]
Case = Literal["", "lower", "upper"]


@dataclass(frozen=True, slots=True)
class BooleanParser:
    """Which words mean what, after the text was made plain; `otherwise` is for all other words."""

    strip: bool = False
    case: Case = ""
    true: frozenset[str] = frozenset()
    false: frozenset[str] = frozenset()
    otherwise: BooleanOutcome = False
    number: bool = False  # any integer is read, and is true unless it is 0

    def read(self, text: str) -> BooleanOutcome:
        word = text.strip() if self.strip else text
        word = {"": word, "lower": word.lower(), "upper": word.upper()}[self.case]
        if word in self.true:
            return True
        if word in self.false:
            return False
        if self.number:
            try:
                return bool(int(word))
            except ValueError:
                return self.otherwise
        return self.otherwise


_NAMED = {
    # SGLang's registry; a warning, then the default.
    "env-bool": BooleanParser(
        case="lower",
        true=frozenset(("true", "1", "yes", "y")),
        false=frozenset(("false", "0", "no", "n")),
        otherwise="default",
    ),
    # SGLang's older helper; a warning in the log, then false.
    "get-bool": BooleanParser(case="lower", true=frozenset(("true", "1"))),
    # vLLM's usual way.
    "bool-int": BooleanParser(number=True, otherwise="crash"),
    # Set to anything at all.
    "any-text": BooleanParser(false=frozenset(("",)), otherwise=True),
}
_CASES: dict[str | None, Case] = {None: "", "lower ": "lower", "upper ": "upper"}
_SPELT_OUT = re.compile(
    r"(?P<strip>strip )?(?P<case>lower |upper )?(?P<how>not in|in|table) \((?P<words>.*)\)"
)


def read_boolean(kind: str, text: str) -> BooleanOutcome:
    """Give what the engine makes of `text` in a variable of this kind."""
    return boolean_parser(kind).read(text)


@cache
def boolean_parser(kind: str) -> BooleanParser:
    """Give the parser of a kind, or raise ValueError for a kind that is not boolean."""
    named = _NAMED.get(kind)
    if named is not None:
        return named
    match = _SPELT_OUT.fullmatch(kind)
    if match is None:
        message = f"{kind!r} is not a boolean kind"
        raise ValueError(message)
    words = frozenset(match["words"].split(", "))
    strip, case = match["strip"] is not None, _CASES[match["case"]]
    if match["how"] == "in":
        return BooleanParser(strip, case, true=words)
    if match["how"] == "not in":
        return BooleanParser(strip, case, false=words, otherwise=True)
    true, _, false = match["words"].partition(", ")
    return BooleanParser(strip, case, frozenset((true,)), frozenset((false,)), "default")
