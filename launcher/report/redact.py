"""Keeps secrets out of what is printed of a plan, whichever way they got into it.

Settings that are secrets by type are "***" before they come here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, cast

from kimi_serve.schemas.plan import SettingValue
from kimi_serve.schemas.vocabulary import HIDDEN

from ..secrets import trees
from ..secrets.known import Known

_LONGEST_NUMBER: Final = 8


def redacted(values: Sequence[SettingValue]) -> tuple[SettingValue, ...]:
    """Replace what looks like a secret in values, now and overridden."""
    return tuple(
        replace(
            value,
            value=trees.redacted(value.value),
            overrode=tuple((origin, trees.redacted(old)) for origin, old in value.overrode),
        )
        for value in values
    )


def hide_in(value: Any, known: Known) -> Any:
    """Cover secrets in every text of a JSON-ready value."""
    if isinstance(value, str):
        return known.hide(value)
    if isinstance(value, Mapping):
        table = cast("Mapping[str, Any]", value)
        return {known.hide(name): hide_in(item, known) for name, item in table.items()}
    if isinstance(value, (tuple, list)):
        return [hide_in(item, known) for item in cast("Sequence[Any]", value)]
    # A password of digits, where a number is wanted; a line or a size has fewer.
    if isinstance(value, int) and len(str(value)) >= _LONGEST_NUMBER:
        return HIDDEN if known.ranges(str(value)) else value
    return value
