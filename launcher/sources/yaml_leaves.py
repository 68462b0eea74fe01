"""The one place where a node of a profile becomes a typed value; strict.

A number in quotes is text, a bare `on` is no text, and each refusal says what to write instead.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from kimi_serve.schemas.fields import SettingField
from kimi_serve.schemas.provenance import EntryOrigin, Origin
from kimi_serve.schemas.vocabulary import HIDDEN

from .characters import bare, find_odd_in_prose, plain_for, shown
from .checks import allowed, check_value, must_be
from .glued import note_glued
from .layers import UNSET, Leaf, Mend, Notes, RefusedError, Span, Unset
from .paths import Surroundings, place_value
from .references import expand, read_secret
from .scalars import refuse_odd
from .shell_words import is_shells, replace_fix, split_words
from .suggest import nearest
from .yaml_nodes import (
    Broken,
    Items,
    Node,
    Scalar,
    Table,
    bool_value,
    float_value,
    int_value,
    is_old_number,
    old_bool,
    old_meaning,
    scalar_kind,
)
from .yaml_numbers import odd_number
from .yaml_text import flow_list


def read_node(
    field: SettingField, key: Span, node: Node, place: Surroundings, notes: Notes
) -> Leaf | None:
    """Give the leaf that `node` sets; None when it cannot be taken, which is noted then.

    `key` is where an empty value is pointed at.
    """
    span = key if _is_empty(node) else node.span
    if isinstance(node, Broken):
        return None
    try:
        value = _Reader(field, place, notes).value(node)
        if isinstance(value, Unset):
            return None
        value = check_value(field, place_value(field, value, place), _shown_node(node))
    except RefusedError as error:
        mend = error.mend or _without_odd(node, error)
        notes.add(error.rule, error.message, span, path=field.path, help=error.help, mend=mend)
        return None
    raw = HIDDEN if field.is_secret else _raw(node)
    items, entries = _places(field, node, notes)
    # A reference is not the value: what is said of a secret is said of its setting.
    stands = key if field.is_secret and isinstance(node, Table) else span
    variable = _variable(node) if field.is_secret else ""
    return Leaf(field.path, raw, value, notes.place(stands), items, entries, variable)


def _variable(node: Node) -> str:
    """Give NAME of `{env: NAME}`."""
    if isinstance(node, Table):
        for key, value in node.entries:
            if key.text == "env" and isinstance(value, Scalar):
                return value.text
    return ""


def _places(
    field: SettingField, node: Node, notes: Notes
) -> tuple[tuple[Origin, ...], dict[str, EntryOrigin]]:
    """Say where the items of a list stand, and the entries of a mapping."""
    if field.kind == "list" and isinstance(node, Items):
        return tuple(notes.place(item.span) for item in node.items), {}
    if field.kind == "mapping" and isinstance(node, Table):
        return (), {
            key.text: EntryOrigin(notes.place(key.span), notes.place(value.span))
            for key, value in node.entries
        }
    return (), {}


def repeated_keys(table: Table) -> Iterator[tuple[Scalar, Scalar]]:
    """Give each key that is there again, after the first of its name."""
    seen: dict[str, Scalar] = {}
    for key, _ in table.entries:
        if key.text in seen:
            yield seen[key.text], key
        seen.setdefault(key.text, key)


class _Reader:
    """Reads the value of one setting; `UNSET` when it was refused with notes of its own."""

    def __init__(self, field: SettingField, place: Surroundings, notes: Notes) -> None:
        self._field = field
        self._place = place
        self._notes = notes

    def value(self, node: Node) -> Any:
        field = self._field
        if isinstance(node, Scalar) and scalar_kind(node) == "null":
            if field.is_nullable:
                return None
            help = f"write {allowed(field)}, or remove the key"
            raise RefusedError("KS104", f"`{field.path}` has no value", help)
        if field.is_secret:
            return read_secret(field, node, self._place, self._notes)
        if field.kind == "list":
            return self._list(node)
        if field.kind == "mapping":
            return self._mapping(node)
        if not isinstance(node, Scalar):
            raise RefusedError("KS104", must_be(field, _shown_node(node)))
        if field.kind == "bool":
            return self._bool(node)
        if field.kind in ("int", "float"):
            return self._number(node)
        return self._text(node)

    def _bool(self, node: Scalar) -> bool:
        if scalar_kind(node) == "bool":
            return bool_value(node.text)
        word = old_bool(node)
        if word is not None:
            self._notes.add(
                "KS005",
                f"`{self._field.path}`: {node.text} is text in YAML 1.2; taken as {_yaml(word)}",
                node.span,
                severity="warning",
                path=self._field.path,
                help=f"write {_yaml(word)}",
                mend=_instead(node, _yaml(word)),
            )
            return word
        self._refuse_odd(node)
        is_quoted = node.text.lower() in ("true", "false") and not node.is_plain
        help = "remove the quotes" if is_quoted else "write true or false"
        raise RefusedError("KS104", must_be(self._field, _shown_node(node)), help)

    def _number(self, node: Scalar) -> int | float:
        kind = scalar_kind(node)
        self._judge_spelling(node)
        try:
            if kind == "int":
                return int_value(node.text)
            if kind == "float" and self._field.kind == "float":
                return float_value(node.text)
        except ValueError:
            raise RefusedError("KS104", must_be(self._field, "a number of that length")) from None
        self._refuse_odd(node)
        raise RefusedError(
            "KS104", must_be(self._field, _shown_node(node)), self._number_help(node)
        )

    def _judge_spelling(self, node: Scalar) -> None:
        """Refuse, or note, a number that readers of YAML disagree about."""
        odd = odd_number(node, is_whole=self._field.kind == "int")
        if odd is None:
            return
        path = self._field.path
        help = f"write {odd.decimal}" if odd.decimal else _PLAIN_DIGITS
        mend = _instead(node, odd.decimal) if odd.decimal else None
        if not odd.is_taken:
            message = f"`{path}`: {bare(node.text)} differs between YAML 1.1 and 1.2"
            raise RefusedError("KS005", message, help, mend=mend)
        taken = f"; taken as {odd.decimal}" if odd.decimal else ""
        message = f"`{path}`: {odd.message}{taken}"
        span = node.span
        self._notes.add("KS005", message, span, severity="warning", path=path, help=help, mend=mend)

    def _number_help(self, node: Scalar) -> str | None:
        as_plain = Scalar(node.text, True, node.span)
        if not node.is_plain and scalar_kind(as_plain) in ("int", "float"):
            return f"remove the quotes: {bare(node.text)}"
        if "${" in node.text:
            return f"${{NAME}} stands in texts only; set {self._field.env_name} instead"
        return None

    def _text(self, node: Scalar) -> Any:
        """Read text or a choice, expanding references."""
        self._refuse_typed(node)
        text = expand(node.text, self._place.env)
        if text is None:
            return UNSET
        if self._field.choices:
            return self._choice(text)
        odd = find_odd_in_prose(text)
        if odd:
            message = f"`{self._field.path}`: {shown(text)} holds {odd}"
            raise RefusedError("KS006", message, odd=odd if text == node.text else None)
        return text

    def _choice(self, text: str) -> str:
        if text in self._field.choices:
            return text
        refuse_odd(self._field, text)
        match = nearest(text, self._field.choices)
        help = f"did you mean {match}?" if match else None
        raise RefusedError("KS104", must_be(self._field, shown(text)), help)

    def _refuse_typed(self, node: Scalar) -> None:
        """Raise when an unquoted scalar is, to some reader or all, no text."""
        kind = scalar_kind(node)
        is_word = old_bool(node) is not None
        if kind == "str" and not is_word and not is_old_number(node):
            self._note_old(node)
            return
        meaning = "a boolean to some readers" if is_word else _MEANINGS[kind]
        rule = "KS104" if kind in ("bool", "null") else "KS005"
        written = bare(node.text) or "an empty value"
        raise RefusedError(
            rule,
            f"{must_be(self._field, '')}; {written} without quotes is {meaning}",
            _quoted_help(self._field, node),
            mend=_quoted(self._field, node) if rule == "KS005" else None,
        )

    def _note_old(self, node: Scalar) -> None:
        """Warn of what is text in YAML 1.2 and was none before."""
        meaning = old_meaning(node)
        if meaning and not self._field.choices:
            path = self._field.path
            written = json.dumps(node.text)
            self._notes.add(
                "KS005",
                f"`{path}`: {bare(node.text)} is {meaning} in YAML 1.1; taken as text",
                node.span,
                severity="warning",
                path=path,
                help=f"write {written}",
                mend=_instead(node, written),
            )

    def _list(self, node: Node) -> Any:
        if isinstance(node, Scalar) and self._field.path == _ARGUMENTS and node.text.strip():
            self._note_shell_line(node)
            return UNSET
        if not isinstance(node, Items):
            help = "write it as a list: [...]" if isinstance(node, Scalar) else None
            raise RefusedError("KS104", must_be(self._field, _shown_node(node)), help)
        values = [self._one(item) for item in node.items]
        return UNSET if any(isinstance(value, Unset) for value in values) else tuple(values)

    def _note_shell_line(self, node: Scalar) -> None:
        """Refuse arguments in one string, and write them as the list that was meant."""
        place = self._notes.place(node.span)
        written = None if is_shells(node.text) else flow_list(split_words(node.text))
        help = "write a list, one item for each argument"
        if written is None:
            help += ", with what a shell would have made of it"
        self._notes.add(
            "KS602",
            f"`{self._field.path}` is one string: no shell takes it apart, and one that did would "
            "drop the quotes of JSON",
            node.span,
            path=self._field.path,
            help=help,
            fix=replace_fix(place, node.text, written, "safe") if written else None,
        )

    def _mapping(self, node: Node) -> Any:
        if isinstance(node, Scalar) and note_glued(node, self._field.path, self._notes):
            return UNSET
        if not isinstance(node, Table):
            raise RefusedError("KS104", must_be(self._field, _shown_node(node)))
        for first, again in repeated_keys(node):
            note_repeat(self._notes, first, again, self._field.path)
        values = {
            key.text: (self._one(key, is_key=True), self._one(value)) for key, value in node.entries
        }
        if any(isinstance(half, Unset) for pair in values.values() for half in pair):
            return UNSET
        return dict(values.values())

    def _one(self, node: Node, *, is_key: bool = False) -> Any:
        """Read one text of a collection; a refusal is noted at that text."""
        if isinstance(node, Broken):
            return UNSET
        try:
            if not isinstance(node, Scalar):
                message = f"`{self._field.path}` takes texts, not {_shown_node(node)}"
                raise RefusedError("KS104", message)
            if is_key:
                self._refuse_typed(node)
                return node.text
            text = self._text(node)
            if isinstance(text, Unset):
                # A `${NAME}` that is not looked up.
                return UNSET if self._field.is_checked else node.text
            if self._field.is_file_path:
                return place_value(self._field, (text,), self._place)[0]
            return text
        except RefusedError as error:
            mend = error.mend or _without_odd(node, error)
            path = self._field.path
            self._notes.add(
                error.rule, error.message, node.span, path=path, help=error.help, mend=mend
            )
            return UNSET

    def _refuse_odd(self, node: Scalar) -> None:
        refuse_odd(self._field, node.text)


_ARGUMENTS = "engine.args"
_PLAIN_DIGITS = "write it in plain decimal digits, without leading zeros, colons or underscores"

_MEANINGS = {
    "null": "no value",
    "bool": "a boolean",
    "int": "a number",
    "float": "a number",
    "str": "a number to some readers",
}


def note_repeat(notes: Notes, first: Scalar, again: Scalar, path: str) -> None:
    """Note that a key is written twice, at the second, with the first as related place."""
    notes.add(
        "KS003",
        f"the key `{bare(again.text)}` is already set in line {first.span.line}",
        again.span,
        path=path,
        help="most readers keep the last and drop the first in silence: keep one",
        related=(first.span,),
    )


def _instead(node: Scalar, text: str) -> Mend | None:
    """Replace a plain scalar that stands on one line as it is read."""
    is_whole = node.is_plain and node.span.end_column - node.span.column == len(node.text)
    return Mend(node.span, text) if is_whole else None


def _quoted(field: SettingField, node: Scalar) -> Mend | None:
    """Put a scalar in quotes, where that makes it a value of the setting."""
    if field.choices and node.text not in field.choices:
        return None
    return _instead(node, json.dumps(node.text))


def _without_odd(node: Node, error: RefusedError) -> Mend | None:
    """Replace the odd character of a plain scalar by what it was meant to be."""
    odd = error.odd
    if odd is None or not isinstance(node, Scalar) or _instead(node, "") is None:
        return None
    plain = plain_for(odd.character)
    column = node.span.column + odd.index
    return None if plain is None else Mend(Span(node.span.line, column, column + 1), plain)


def _quoted_help(field: SettingField, node: Scalar) -> str:
    if field.choices:
        return f"write one of them, in quotes: {', '.join(map(json.dumps, field.choices))}"
    return f"put it in quotes if it is meant: {json.dumps(bare(node.text))}"


def _is_empty(node: Node) -> bool:
    return isinstance(node, Scalar) and node.is_plain and not node.text


def _shown_node(node: Node) -> str:
    if isinstance(node, Scalar):
        if not node.is_plain:
            return f"the text {shown(node.text)}"
        return shown(node.text) if scalar_kind(node) == "str" else bare(node.text)
    if isinstance(node, Items):
        return "a list" if node.items else "an empty list"
    return "a mapping"


def _raw(node: Node) -> Any:
    if isinstance(node, Scalar):
        return node.text
    if isinstance(node, Items):
        return [_raw(item) for item in node.items]
    if isinstance(node, Table):
        return {key.text: _raw(value) for key, value in node.entries}
    return None


def _yaml(value: bool) -> str:
    return "true" if value else "false"
