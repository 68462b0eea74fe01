"""Whether two names that are spelt alike mean the opposite: a rename would turn a wish around."""

from __future__ import annotations

import re
from typing import Final

_NO: Final = frozenset(
    (
        *("no", "not", "non", "dont", "never", "without", "skip", "off"),
        *("disable", "disabled", "deny", "denied", "block", "blocked", "forbid", "forbidden"),
        *("disallow", "disallowed", "refuse", "refused", "ignore"),
    )
)
_PAIRS: Final = (("gpu", "cpu"), ("cuda", "cpu"), ("min", "max"), ("previous", "next"))


def means_opposite(name: str, other: str) -> bool:
    """Tell whether exactly one of two names denies what both are about."""
    ours, theirs = _words(name), _words(other)
    turns = len(ours & _NO) + len(theirs & _NO)
    for one, two in _PAIRS:
        turns += (one in ours) != (one in theirs) and (two in ours) != (two in theirs)
    return turns % 2 == 1


def _words(name: str) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z]+", name.casefold()))
