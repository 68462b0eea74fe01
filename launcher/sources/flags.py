"""Reads what was given on the command line: options, `--set PATH=YAML`, pasted characters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kimi_serve.schemas.fields import SettingField, keys_of, sections, setting_fields
from kimi_serve.schemas.findings import Finding
from kimi_serve.schemas.provenance import Origin

from .characters import (
    OddCharacter,
    bare,
    find_invisible,
    is_dash,
    is_invisible,
    is_look_alike,
)
from .checks import must_be
from .layers import Layer, Leaf, Notes, Span
from .paths import Surroundings, working_folder
from .scalars import read_text
from .suggest import flag_of, suggest_path
from .yaml_leaves import read_node
from .yaml_nodes import Scalar
from .yaml_tree import parse_yaml


def read_flags(
    given: Mapping[str, object],
    set_items: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
) -> Layer:
    """Read the options that were given explicitly, then the `--set` items on top.

    `given` is keyed by `SettingField.parameter`; a value is the text as typed, or a bool where
    one of `--x` and `--no-x` was written. `env` serves `${NAME}` and secrets in `--set`.
    """
    place = Surroundings(working_folder(), env)
    by_parameter = {field.parameter: field for field in setting_fields().values()}
    leaves: list[Leaf | None] = []
    notes = Notes.on(Origin("flag", "command line"))
    for parameter, value in given.items():
        field = by_parameter[parameter]
        leaves.append(_read_option(field, value, place, notes))
    for number, item in enumerate(set_items, start=1):
        leaves.append(_read_set_item(item, number, place, notes))
    taken = tuple(leaf for leaf in leaves if leaf)
    return Layer("command line", taken, tuple(notes.findings))


def _read_option(
    field: SettingField, value: object, place: Surroundings, notes: Notes
) -> Leaf | None:
    negative = field.negative_flag if value is False else None
    origin = Origin("flag", negative or field.flag)
    notes.turn_to(origin)
    if isinstance(value, bool) and field.kind == "bool":
        return Leaf(field.path, "true" if value else "false", value, origin)
    if isinstance(value, str):
        return read_text(field, value, origin, place, notes)
    notes.add("KS104", must_be(field, ""), path=field.path)
    return None


def _read_set_item(item: str, number: int, place: Surroundings, notes: Notes) -> Leaf | None:
    """Read `PATH=YAML` as strictly as a profile; an unreadable item is not repeated."""
    field = _set_field(item, number, notes)
    text = item.partition("=")[2]
    node = parse_yaml(text, notes) if field and text.strip() else _empty()
    return read_node(field, _WHOLE, node, place, notes) if field and node else None


def _set_field(item: str, number: int, notes: Notes) -> SettingField | None:
    """Give the setting of a `--set` item; None when it names none, which is noted then."""
    written, equals, _ = item.partition("=")
    path = written.strip()
    field = setting_fields().get(path)
    known = path if field else f"item {number}"
    notes.turn_to(Origin("flag", f"--set {known}"))
    if not equals:
        notes.add("KS104", "`--set` takes PATH=VALUE, such as tokenizer.worker_num=4")
        return None
    if field is None:
        _note_unknown(path, notes)
    return field


def check_set_items(items: Sequence[str]) -> tuple[Finding, ...]:
    """Find `--set` items that name no setting; what they set it to is not looked at."""
    notes = Notes.on(Origin("flag", "command line"))
    for number, item in enumerate(items, start=1):
        _set_field(item, number, notes)
    return tuple(notes.findings)


def _note_unknown(path: str, notes: Notes) -> None:
    if path in sections():
        help = f"name one of its keys: {', '.join(keys_of(path))}"
        notes.add("KS101", f"`{path}` is a section, not a setting", path=path, help=help)
        return
    suggestion = suggest_path(path)
    message = f"there is no setting `{bare(path)}`"
    full = f"{message}; did you mean `{suggestion}`?" if suggestion else message
    notes.add("KS101", full, path=bare(path))


_WHOLE = Span(1, 1, 2)


def _empty() -> Scalar:
    return Scalar("", True, _WHOLE)


def check_argv(argv: Sequence[str]) -> tuple[Finding, ...]:
    """Find options that were pasted with other dashes, blanks or quotes than ASCII ones.

    An argument is named by its number, and repeated only where it spells a known flag: it may
    hold a secret.
    """
    notes = Notes.on(Origin("flag", "command line"))
    for number, argument in enumerate(argv, start=1):
        if argument == "--":
            break
        odd = _odd_in_option(argument)
        if odd is None:
            continue
        flag = flag_of(_meant_name(argument))
        origin = Origin("flag", flag or f"argument {number}")
        notes.turn_to(origin)
        notes.add(
            "KS006",
            f"argument {number}{f' (meant as {flag})' if flag else ''} holds {odd}",
            help=f"type {flag or 'it'} again by hand",
        )
    return tuple(notes.findings)


def _odd_in_option(argument: str) -> OddCharacter | None:
    """Give an odd character in the name part of an option; values are checked when read."""
    name = argument.partition("=")[0]
    if is_look_alike(name[:1]) and name[1:2] == "-":
        return OddCharacter(name[0], 0)
    dashes = name[: len(name) - len(_bare_name(name))]
    if not dashes:
        return None
    for index, character in enumerate(dashes):
        if is_dash(character) and _bare_name(name)[:1].isalpha():
            return OddCharacter(character, index)
    if not dashes.startswith("-"):
        return None
    odd = find_invisible(name)
    if odd:
        return odd
    for index, character in enumerate(name):
        if is_look_alike(character):
            return OddCharacter(character, index)
    return None


def _bare_name(argument: str) -> str:
    """Give the name part of an option without its dashes."""
    name = argument.partition("=")[0]
    start = next(
        (i for i, character in enumerate(name) if character != "-" and not is_dash(character)),
        len(name),
    )
    return name[start:]


def _meant_name(argument: str) -> str:
    """Give the name that an option with odd characters was meant to have."""
    name = _bare_name(argument.strip("\u201c\u201d"))
    for index, character in enumerate(name):
        if is_invisible(character):
            return name[:index]
    return "".join("-" if is_dash(character) else character for character in name)
