"""Reads the file behind `--config` as the engine does, and says what the engine makes of it."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import yaml

from kimi_serve.schemas.engine_facts import EngineTable
from kimi_serve.schemas.provenance import DEFAULT

from ..sources.characters import printable
from ..sources.layers import Notes
from ..sources.yaml_leaves import repeated_keys
from ..sources.yaml_nodes import Table
from ..sources.yaml_tree import MAX_BYTES, parse_yaml
from .words import Told, Word, literal

CONFIG = "--config"
_SUFFIXES = (".yaml", ".yml")


def split_config(
    args: tuple[Word, ...], table: EngineTable, told: Told
) -> tuple[tuple[Word, ...], tuple[Word, ...]]:
    """Give the words that a file behind `--config` stands for, and the others.

    A file that cannot be read stays among the others, with what to do about it.
    """
    joined = [word for word in args if word.text.startswith(f"{CONFIG}=")]
    for word in joined:
        told.find(
            "KS202", "warning",
            f"{table.engine} never opens the file of {CONFIG}=FILE and does not say so: nothing of "
            "it is adopted",
            word.place,
            f"if it is meant, adopt the command with `{CONFIG} FILE`, in two words",
        )  # fmt: skip
        told.left_out((word,), "the engine does not read it either")
    args = tuple(word for word in args if word not in joined)
    places = [index for index, word in enumerate(args) if word.text == CONFIG]
    if not places or places[-1] + 1 >= len(args):
        return (), args
    if len(places) > 1:
        told.note(f"{CONFIG} stands twice, which {table.engine} refuses: kept as it is written")
        return (), args
    (index,) = places
    read = _read(args[index + 1], table, told)
    return ((), args) if read is None else (read, (*args[:index], *args[index + 2 :]))


def _read(file: Word, table: EngineTable, told: Told) -> tuple[Word, ...] | None:
    name = printable(file.text)
    if not file.text.endswith(_SUFFIXES):
        told.note(f"{name} is no .yaml or .yml file, which {table.engine} refuses: kept")
        return None
    try:
        with Path(file.text).open("rb") as opened:
            data = opened.read(MAX_BYTES + 1)
        text = data.decode("utf-8")
    except (OSError, ValueError):
        told.note(
            f"{name} cannot be read here, so its keys are not adopted: run adopt where the file is"
        )
        return None
    entries = _entries(text)
    if entries is None or len(data) > MAX_BYTES:
        told.note(f"{name} is no mapping of names that can be read: kept as it is written")
        return None
    told.files.append(file.text)
    told.note(f"the keys of {name} are adopted; what stands on the command line wins over them")
    lines = _lines(text, name, told)
    words: list[Word] = []
    for key, value in entries.items():
        place = f"{name}:{lines.get(key, 1)}"
        words += _words(key, value, place, table, told)
    return tuple(words)


def _entries(text: str) -> dict[str, Any] | None:
    """Read the file with the types that the engines see: both use YAML 1.1."""
    try:
        loaded: Any = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        return None
    if not isinstance(loaded, dict):
        return None
    entries = cast("dict[object, Any]", loaded)
    return {str(key): value for key, value in entries.items()}


def _lines(text: str, name: str, told: Told) -> dict[str, int]:
    """Give the line of each key; a key that is there twice is said."""
    tree = parse_yaml(text, Notes.on(DEFAULT))
    if not isinstance(tree, Table):
        return {}
    for first, again in repeated_keys(tree):
        told.note(
            f"{name}:{again.span.line}: {printable(again.text)} stands in line "
            f"{first.span.line} too: the engine keeps the last without a word"
        )
    return {key.text: key.span.line for key, _ in tree.entries}


def _words(key: str, value: Any, place: str, table: EngineTable, told: Told) -> Iterator[Word]:
    """Give the words that the engine makes of one key."""
    flag = Word(f"--{literal(key)}", place)
    shown = f"{place}: {printable(key)}"
    if value is False or value == []:
        what = "false" if value is False else "an empty list"
        told.note(f"left out: {shown}: {what} is dropped by the engine, and its default stays")
        if value is False:
            _say_lost_default(key, place, table, told)
        return
    if value is True:
        yield flag
        return
    if value is None:
        told.note(f"{shown}: null becomes the text None in the engine")
    if isinstance(value, list):
        yield flag
        for item in cast("list[object]", value):
            yield Word(literal(str(item)), place)
        return
    if isinstance(value, datetime.date):
        told.note(f"{shown}: YAML reads a date, and the engine gets its text")
    text = json.dumps(value) if isinstance(value, dict) else str(value)
    yield flag
    yield Word(literal(text), place)


def _say_lost_default(key: str, place: str, table: EngineTable, told: Told) -> None:
    facts = table.flag(f"--{key}")
    if facts is not None and facts.negatives and facts.default is not False:
        told.find(
            "KS104", "warning",
            f"{table.engine} drops {printable(key)}: false of its file: the switch keeps its "
            "default",
            place,
            f"if it is meant to be off, add {facts.negatives[0]} to engine.args",
        )  # fmt: skip
