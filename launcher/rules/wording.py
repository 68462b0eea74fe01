"""Short ways for rules to say what they found."""

from __future__ import annotations

import json
from typing import Any, Literal, cast

from kimi_serve.schemas.findings import Edit, Finding, Fix, Severity
from kimi_serve.schemas.provenance import Origin
from kimi_serve.schemas.rules import RULES

from ..resolver.engine_view import Given
from ..resolver.situation import Situation


def at(
    rule: str,
    given: Given,
    message: str,
    help: str | None = None,
    *,
    severity: Severity | None = None,
    related: tuple[Origin, ...] = (),
    fix: Fix | None = None,
) -> Finding:
    """A finding where a given value stands."""
    level = severity or RULES[rule].severity
    return Finding(rule, level, message, given.origin, given.path, help, related, fix)


def on(
    situation: Situation,
    rule: str,
    path: str,
    message: str,
    help: str | None = None,
    *,
    severity: Severity | None = None,
) -> Finding:
    """A finding about a setting."""
    level = severity or RULES[rule].severity
    return Finding(rule, level, message, situation.origin(path), path, help)


def replaced(
    given: Given,
    old: str,
    new: str,
    whole: str,
    applicability: Literal["safe", "unsafe"],
) -> Fix | None:
    """Mend a name at the start of the text `whole`, which stands where `given` does.

    None where the text is not written as it is read: it is folded, or holds escapes.
    """
    origin = given.origin
    if origin.line is None or origin.column is None or origin.end_column is None:
        return None
    quotes = origin.end_column - origin.column - len(whole)
    if origin.kind != "profile" or quotes not in (0, 2) or not whole.startswith(old):
        return None
    start = origin.column + quotes // 2
    return Fix(applicability, (Edit(origin.name, origin.line, start, start + len(old), new),))


def json_object(given: Given) -> dict[str, Any]:
    """Give the mapping that a flag holds; nothing for what is none."""
    try:
        value: object = json.loads(given.text)
    except (ValueError, RecursionError):
        return {}
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}
