"""Whether a typed value may stand in a setting, and in which words that is said.

pydantic checks; its sentences, which speak of types and may show input, are never passed on.
"""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from kimi_serve.schemas.fields import SettingField

from .layers import RefusedError


def check_value(field: SettingField, value: Any, shown_as: str) -> Any:
    """Give `value` validated; `shown_as` is how a message may show it ("" for a secret)."""
    try:
        return field.validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
    kind = first["type"]
    if kind == "string_unicode":
        raise RefusedError("KS104", f"`{field.path}` is not valid text")
    if kind == "value_error" and not field.is_secret:
        raise RefusedError("KS104", f"`{field.path}`: {first.get('ctx', {}).get('error')}")
    raise RefusedError("KS104", must_be(field, shown_as))


def must_be(field: SettingField, shown_as: str) -> str:
    """Say what the setting takes, and what it was given."""
    given = f", not {shown_as}" if shown_as and not field.may_hold_secrets else ""
    return f"`{field.path}` must be {allowed(field)}{given}"


def allowed(field: SettingField) -> str:
    """Describe the values of a setting in the user's words."""
    null = " or null" if field.is_nullable else ""
    at_least_one = field.bound("min_length") is not None
    if field.kind == "bool":
        return f"true or false{null}"
    if field.kind == "choice":
        return f"one of {', '.join(field.choices)}{null}"
    if field.kind == "list":
        items = f"of {', '.join(field.choices)}" if field.choices else "of texts"
        return f"a list {items}{' with at least one item' if at_least_one else ''}{null}"
    if field.kind == "mapping":
        return f"a mapping of names to texts{null}"
    if field.kind in ("str", "secret"):
        return f"text{' that is not empty' if at_least_one else ''}{null}"
    noun = "a whole number" if field.kind == "int" else "a number"
    return f"{noun}{_range(field)}{null}"


def _range(field: SettingField) -> str:
    """Put the bounds in words: " from 1 to 1024", " above 0 and at most 3600"."""
    at_least, above = field.bound("ge"), field.bound("gt")
    at_most, below = field.bound("le"), field.bound("lt")
    if at_least is not None and at_most is not None:
        return f" from {at_least} to {at_most}"
    bounds = {"at least": at_least, "above": above, "at most": at_most, "below": below}
    words = [f"{word} {bound}" for word, bound in bounds.items() if bound is not None]
    return f" {' and '.join(words)}" if words else ""
