"""The one place where the text of a variable or a flag becomes a typed value; lenient.

Surrounding ASCII blanks are dropped, an empty text says nothing, booleans and choices are
case-blind, lists may be JSON or `a,b,c`.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, cast

from pydantic import SecretStr

from kimi_serve.schemas.fields import SettingField
from kimi_serve.schemas.provenance import Origin
from kimi_serve.schemas.vocabulary import HIDDEN

from .characters import OddCharacter, bare, find_invisible, find_odd, find_odd_in_prose, shown
from .checks import check_value, must_be
from .layers import UNSET, Leaf, Notes, RefusedError, Unset
from .paths import Surroundings, place_value

TRUE_WORDS: Final = frozenset({"1", "true", "yes", "y", "on", "t"})
FALSE_WORDS: Final = frozenset({"0", "false", "no", "n", "off", "f"})
ASCII_BLANKS = " \t\n\r\f\v"
_INT = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?")
# Python refuses to convert more digits than this, and no setting is as large.
_MAX_DIGITS = 4000


def read_text(
    field: SettingField, text: str, origin: Origin, place: Surroundings, notes: Notes
) -> Leaf | None:
    """Give the leaf that `text` sets; None when it says nothing or, noted, cannot be taken."""
    try:
        value = parse_text(field, text)
        if isinstance(value, Unset):
            return None
        value = check_value(field, place_value(field, value, place), _shown(field, text))
    except RefusedError as error:
        notes.add(error.rule, error.message, path=field.path, help=error.help)
        return None
    return Leaf(field.path, HIDDEN if field.is_secret else text, value, origin)


def parse_text(field: SettingField, text: str) -> Any:
    """Give the typed value of `text`, `UNSET` when it is blank; bounds are not checked here.

    Raises RefusedError.
    """
    word = text.strip(ASCII_BLANKS)
    if not word:
        return UNSET
    refuse_odd(field, text)
    if field.kind == "bool":
        return _bool(field, text, word)
    if field.kind == "int":
        return int(_number(field, _INT, text, word))
    if field.kind == "float":
        return float(_number(field, _FLOAT, text, word))
    if field.kind == "choice":
        return _choice(field, text, word)
    if field.kind == "list":
        return tuple(_item(field, text, item) for item in _items(field, text, word))
    if field.kind == "mapping":
        return _mapping(field, text, word)
    return SecretStr(word) if field.is_secret else word


def refuse_odd(field: SettingField, text: str) -> None:
    """Raise RefusedError when `text` holds a character that was pasted rather than meant."""
    if field.is_secret:
        odd = find_invisible(text.strip(ASCII_BLANKS))
    elif field.kind in ("str", "mapping") or (field.kind == "list" and not field.choices):
        odd = find_odd_in_prose(text.strip(ASCII_BLANKS))
    else:
        odd = find_odd(text.strip(ASCII_BLANKS))
    if odd is None:
        return
    # Count from the start of what was really written.
    blanks = len(text) - len(text.lstrip(ASCII_BLANKS))
    odd = OddCharacter(odd.character, odd.index + blanks)
    value = "the value" if field.is_secret else _shown(field, text) or "the value"
    message = f"`{field.path}`: {value} holds {odd}"
    raise RefusedError("KS006", message, "type it again by hand", odd=odd)


def _bool(field: SettingField, text: str, word: str) -> bool:
    folded = word.casefold()
    if folded in TRUE_WORDS or folded in FALSE_WORDS:
        return folded in TRUE_WORDS
    help = "write 1, true, yes, y, on, t or 0, false, no, n, off, f"
    raise RefusedError("KS104", must_be(field, shown(text)), help)


def _number(field: SettingField, pattern: re.Pattern[str], text: str, word: str) -> str:
    if pattern.fullmatch(word) and len(word) <= _MAX_DIGITS:
        return word
    digits = word.lstrip("+-").replace("_", "").lstrip("0") or "0"
    is_close = digits != word and pattern.fullmatch(digits) and len(digits) <= _MAX_DIGITS
    help = f"write {bare(digits)}" if is_close and not word.startswith("-") else None
    raise RefusedError("KS104", must_be(field, shown(text)), help)


def _choice(field: SettingField, text: str, word: str) -> str:
    for choice in field.choices:
        if choice.casefold() == word.casefold():
            return choice
    raise RefusedError("KS104", must_be(field, shown(text)))


def _items(field: SettingField, text: str, word: str) -> list[object] | list[str]:
    if word.startswith("["):
        items = _json(field, text, word)
        if isinstance(items, list):
            return cast(list[object], items)
        raise RefusedError("KS104", must_be(field, _shown(field, text)))
    return [item.strip(ASCII_BLANKS) for item in word.split(",")]


def _item(field: SettingField, text: str, item: Any) -> str:
    if isinstance(item, int) and not isinstance(item, bool):
        item = str(item)
    if not isinstance(item, str) or not item:
        written = "" if field.may_hold_secrets else f" {bare(json.dumps(item))}"
        what = "an empty item" if item == "" else f"the item{written}"
        raise RefusedError("KS104", f"{must_be(field, _shown(field, text))}: {what} is not text")
    if field.item_kind == "choice":
        return _choice(field, text, item)
    refuse_odd(field, item)
    return item


def _mapping(field: SettingField, text: str, word: str) -> dict[str, str]:
    given = _json(field, text, word)
    if not isinstance(given, dict):
        help = 'write JSON: {"NAME": "text"}'
        raise RefusedError("KS104", must_be(field, _shown(field, text)), help)
    pairs = cast(dict[str, Any], given)
    for key, value in pairs.items():
        if not isinstance(value, str):
            help = "put the value in quotes"
            raise RefusedError(
                "KS104", f"`{field.path}`: the value of {shown(key)} is no text", help
            )
    return pairs


def _json(field: SettingField, text: str, word: str) -> Any:
    try:
        return json.loads(word, object_pairs_hook=_without_repeats)
    except json.JSONDecodeError as error:
        reason = f"{error.msg} at character {error.pos + 1}"
    except RecursionError:
        reason = "nested too deeply"
    except ValueError as error:
        reason = str(error)
    written = _shown(field, text) or "the value"
    raise RefusedError("KS104", f"`{field.path}`: {written} is not JSON: {reason}")


def _shown(field: SettingField, text: str) -> str:
    return "" if field.may_hold_secrets else shown(text)


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {shown(key)} is there twice")
        found[key] = value
    return found
