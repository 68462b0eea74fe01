"""Secrets in values that are made of others: tables of variables, command lines, JSON texts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

from kimi_serve.schemas.vocabulary import HIDDEN

from .names import begins_like_flag, is_next_flag, is_secret_flag, is_secret_name, takes_several
from .shapes import cover, is_reference, mask, parts_of, secrets_in, spelt_parts

_LONGEST_JSON: Final = 256 * 1024


def redacted(value: Any) -> Any:
    """Give a JSON-ready value without its secrets."""
    return _Walk().cleaned(value)


def secrets_of(value: Any) -> set[str]:
    """Give the secrets of a JSON-ready value, each in every spelling of its own text."""
    walk = _Walk()
    walk.cleaned(value)
    return walk.found


def secrets_of_items(items: Sequence[str]) -> Iterator[set[str]]:
    """Give the secrets of each item of a command line."""
    walk = _Walk()
    for _ in walk.line(items):
        yield walk.found
        walk.found = set()


class _Walk:
    """Copies a value without its secrets, which are in `found` then."""

    def __init__(self) -> None:
        self.found: set[str] = set()

    def cleaned(self, value: Any, *, is_secret: bool = False) -> Any:
        if isinstance(value, Mapping):
            return self._table(cast("Mapping[str, Any]", value), is_secret)
        if isinstance(value, Sequence) and not isinstance(value, str):
            items = list(cast("Iterable[Any]", value))
            if is_secret:
                return [self.cleaned(item, is_secret=True) for item in items]
            return list(self.line(items))
        if is_secret:
            return self._hidden(value)
        return self._text(value) if isinstance(value, str) else value

    def _hidden(self, value: Any) -> Any:
        if value is None or isinstance(value, bool):
            return value
        text = str(value)
        if text != HIDDEN and is_reference(text):
            return value
        self.found.update((*spelt_parts(text), *parts_of(text)))
        return HIDDEN

    def _table(self, table: Mapping[str, Any], is_secret: bool) -> dict[str, Any]:
        cleaned: dict[str, Any] = {}
        for name, value in table.items():
            self.found.update(parts_of(name))
            is_named_so = is_secret or is_secret_name(name) or _names_value(table, name)
            new = self.cleaned(value, is_secret=is_named_so)
            # A login in the address of a proxy: the rest of it is nobody's business either.
            cleaned[mask(name)] = HIDDEN if isinstance(new, str) and new != value else new
        return cleaned

    def line(self, items: Sequence[Any]) -> Iterator[Any]:
        """Clean a list as a command line: VALUE of `--some-key VALUE` is secret."""
        flag = ""
        for item in items:
            if (
                isinstance(item, str)
                and begins_like_flag(item)
                and (not flag or is_next_flag(item))
            ):
                yield self._option(item)
                flag = "" if "=" in item or not is_secret_flag(item) else item
            else:
                yield self.cleaned(item, is_secret=bool(flag))
                flag = flag if takes_several(flag) else ""

    def _option(self, item: str) -> str:
        name, is_joined, text = item.partition("=")
        if is_joined and is_secret_flag(name):
            return f"{name}={self._hidden(text)}"
        return f"{name}={self._text(text)}" if is_joined else self._text(item)

    def _text(self, text: str) -> str:
        tree = _json_in(text)
        if tree is not None:
            cleaned = self.cleaned(tree)
            return text if cleaned == tree else json.dumps(cleaned, ensure_ascii=False)
        self.found.update(parts_of(text))
        return cover(text, secrets_in(text))


def _names_value(table: Mapping[str, Any], name: str) -> bool:
    """Say whether this is the value of `{name: HF_TOKEN, value: X}`, as Kubernetes writes it."""
    named = table.get("name")
    return name == "value" and isinstance(named, str) and is_secret_name(named)


def _json_in(text: str) -> Any:
    """Give the collection that a text is as JSON, else None."""
    if text.lstrip()[:1] not in ("{", "[") or len(text) > _LONGEST_JSON:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
