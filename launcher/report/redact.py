"""Keeps secrets out of what is printed: values that look like keys in what an engine is given.

Settings that are secrets by type are "***" before they come here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from kimi_serve.schemas.plan import SettingValue

HIDDEN = "***"

_WORDS = re.compile(
    r"(?:^|[_-])(?:api)?(?:key|token|secret|pass|passwd|password|passphrase|credentials?|auth)"
    r"(?=[_-]|$)",
    re.IGNORECASE,
)
_LOGIN_IN_URL = re.compile(r"://[^/\s]*@")


def redacted(values: Sequence[SettingValue]) -> tuple[SettingValue, ...]:
    """Replace what looks like a secret in engine.env and engine.args, now and overridden."""
    return tuple(
        replace(
            value,
            value=_redact(value.path, value.value),
            overrode=tuple((origin, _redact(value.path, old)) for origin, old in value.overrode),
        )
        for value in values
    )


def _redact(path: str, value: Any) -> Any:
    if path == "engine.env" and isinstance(value, Mapping):
        variables = cast("Mapping[str, str]", value)
        return {name: _redact_named(name, text) for name, text in variables.items()}
    if path == "engine.args" and isinstance(value, Sequence) and not isinstance(value, str):
        return list(_redact_args(cast("Sequence[str]", value)))
    return value


def _redact_named(name: str, text: str) -> str:
    return HIDDEN if _WORDS.search(name) or _LOGIN_IN_URL.search(text) else text


def _redact_args(args: Sequence[str]) -> Iterator[str]:
    """Hide `--some-key=VALUE`, and VALUE where it is the item after `--some-key`."""
    flag = ""
    for item in args:
        name, is_joined, text = item.partition("=")
        if not item.startswith("--"):
            yield _redact_named(flag, item)
            flag = ""
        elif is_joined:
            yield f"{name}={_redact_named(name, text)}"
            flag = ""
        else:
            yield item
            flag = name
