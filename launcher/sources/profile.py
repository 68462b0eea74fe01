"""Reads profiles: YAML files of sections and settings, each on top of the files it extends."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from kimi_serve.schemas.fields import keys_of, sections, setting_fields
from kimi_serve.schemas.provenance import Origin

from .characters import bare, find_odd, is_invisible, plain_for, printable, shown
from .files import read_file, reason_of
from .glued import note_glued
from .layers import Layer, Leaf, Mend, Notes, RefusedError, Span
from .paths import Surroundings, absolute, working_folder
from .suggest import flag_of_engine, similar_key, suggest_key
from .yaml_leaves import note_repeat, read_node, repeated_keys
from .yaml_nodes import Broken, Items, Node, Scalar, Table, scalar_kind
from .yaml_tree import MAX_BYTES, parse_yaml

EXTENDS: Final = "extends"
_MAX_CHAIN: Final = 32


def read_profile(path: str | Path, env: Mapping[str, str] | None) -> tuple[Layer, ...]:
    """Read one profile: a layer for each file, lowest first, the file itself last.

    `env` gives the variables that the profile refers to; with None they are not looked up.
    """
    return read_profiles([path], env)


def read_profiles(paths: Iterable[str | Path], env: Mapping[str, str] | None) -> tuple[Layer, ...]:
    """Read several profiles, the later on top; a parent that several extend is read once."""
    reader = _Reader(env)
    for path in paths:
        reader.read(os.fspath(path))
    return tuple(reader.layers)


def read_profile_text(
    data: bytes | str,
    name: str,
    folder: str,
    env: Mapping[str, str] | None,
    file: str | None = None,
) -> tuple[Layer, ...]:
    """Read a profile that is at hand; `folder` is where its relative paths start.

    `file` is where the text was read from, so that it is known when a parent extends it.
    """
    reader = _Reader(env)
    chain = () if file is None else (os.path.realpath(file),)
    reader.read_text(data, name, os.path.join(working_folder(), folder), chain)
    return tuple(reader.layers)


class _Reader:
    """Reads files and their parents; `layers` holds each file after its parents."""

    def __init__(self, env: Mapping[str, str] | None) -> None:
        self.layers: list[Layer] = []
        self._env = env
        self._read: set[str] = set()

    def read(self, name: str) -> None:
        """Read a file that was named by the user."""
        try:
            data = read_file(name, MAX_BYTES + 1, is_named=True)
        except (OSError, ValueError) as error:
            origin = Origin("profile", printable(name))
            notes = Notes.on(origin)
            notes.add("KS403", f"the profile cannot be read: {reason_of(error)}")
            self.layers.append(Layer(printable(name), findings=tuple(notes.findings)))
            return
        folder = os.path.dirname(os.path.join(working_folder(), name))
        self.read_text(data, name, folder, (os.path.realpath(name),))

    def read_text(self, data: bytes | str, name: str, folder: str, chain: tuple[str, ...]) -> None:
        """Add the layers of one text; `chain` are the files that led here, this one last."""
        self._read.update(chain[-1:])
        shown_name = printable(name)
        notes = Notes(lambda span: _origin(shown_name, span))
        root = parse_yaml(data, notes)
        leaves: tuple[Leaf, ...] = ()
        if isinstance(root, Table):
            parents = [value for key, value in root.entries if key.text == EXTENDS]
            for parent in _parents(parents, notes):
                self._extend(parent, name, folder, chain, notes)
            leaves = read_sections(root, Surroundings(folder, self._env), notes)
        elif isinstance(root, Scalar) and note_glued(root, "", notes):
            pass
        elif root is not None and not _is_nothing(root):
            kind = "a list" if isinstance(root, Items) else "a single value"
            notes.add(
                "KS002",
                f"a profile is a mapping of sections, and this is {kind}",
                root.span,
                help="start with a section: `model:`",
            )
        findings = sorted(
            notes.findings, key=lambda found: (found.origin.line or 0, found.origin.column or 0)
        )
        self.layers.append(Layer(shown_name, leaves, tuple(findings), name))

    def _extend(
        self, parent: Scalar, name: str, folder: str, chain: tuple[str, ...], notes: Notes
    ) -> None:
        try:
            if self._env is None and parent.text.startswith("~"):
                raise RefusedError(
                    "KS004",
                    f"{shown(parent.text)} is another file for everybody who runs this",
                    "write a path that is relative to this file; only --env looks up a home",
                )
            target = absolute(parent.text, Surroundings(folder, self._env))
            real = os.path.realpath(target)
            if real in chain:
                raise RefusedError(
                    "KS004", f"{shown(parent.text)} extends itself, through others or directly"
                )
            if real in self._read:
                return
            if len(chain) >= _MAX_CHAIN:
                raise RefusedError("KS004", f"more than {_MAX_CHAIN} files extend each other")
            data = read_file(target, MAX_BYTES + 1)
        except RefusedError as error:
            notes.add("KS004", error.message, parent.span, path=EXTENDS, help=error.help)
        except (OSError, ValueError) as error:
            notes.add(
                "KS004",
                f"{shown(parent.text)} cannot be read: {reason_of(error)}",
                parent.span,
                path=EXTENDS,
                help="paths are relative to this file",
            )
        else:
            shown_as = os.path.normpath(os.path.join(os.path.dirname(name), parent.text))
            is_home = parent.text.startswith("~")
            self.read_text(
                data, target if is_home else shown_as, os.path.dirname(target), (*chain, real)
            )


def read_sections(root: Table, place: Surroundings, notes: Notes) -> tuple[Leaf, ...]:
    """Read all sections; of a key that is written twice both are checked and the later counts."""
    for first, again in repeated_keys(root):
        note_repeat(notes, first, again, again.text if again.text in sections() else "")
    leaves: dict[str, Leaf] = {}
    for key, node in _entries(root):
        if key.text == EXTENDS or isinstance(node, Broken):
            continue
        if key.text not in keys_of(None):
            _note_unknown(key, None, notes)
        else:
            found = _read_section(key.text, key, node, place, notes)
            leaves |= {leaf.path: leaf for leaf in found}
    return tuple(leaves.values())


def _entries(table: Table) -> Iterator[tuple[Scalar, Node]]:
    """Give the entries; what stands above a key indented with pasted blanks is not empty.

    To YAML it is: that key is one of the table itself, and refused for its blanks.
    """
    for index, (key, node) in enumerate(table.entries):
        after = "".join(below.text for below, _ in table.entries[index + 1 : index + 2])
        is_above = isinstance(node, Scalar) and not node.text and is_invisible(after[:1] or "-")
        yield key, Broken(node.span) if is_above else node


def _read_section(
    section: str, key: Scalar, node: Node, place: Surroundings, notes: Notes
) -> Sequence[Leaf]:
    """Read what stands behind the key of a section: it must be a mapping of settings."""
    if isinstance(node, Table):
        return _read_keys(section, node, place, notes)
    if isinstance(node, Scalar) and scalar_kind(node) == "null":
        notes.add(
            "KS106",
            f"the section `{section}` is empty",
            key.span,
            path=section,
            help="remove it, or give it a setting",
            mend=_emptied(key, node),
        )
    elif isinstance(node, Scalar) and note_glued(node, section, notes):
        pass
    elif not isinstance(node, Broken):
        what = "a list" if isinstance(node, Items) else "one value"
        notes.add(
            "KS104",
            f"`{section}` is a section of settings, not {what}",
            node.span,
            path=section,
            help=_keys_of(section),
        )
    return ()


def _read_keys(section: str, table: Table, place: Surroundings, notes: Notes) -> Sequence[Leaf]:
    for first, again in repeated_keys(table):
        note_repeat(notes, first, again, f"{section}.{again.text}")
    leaves: list[Leaf] = []
    for key, node in _entries(table):
        path = f"{section}.{key.text}"
        # A path with dots is no key: `nodes.count` beside `nodes` would be dropped in silence.
        field = setting_fields().get(path) if key.text in keys_of(section) else None
        if path in sections() and key.text in keys_of(section):
            leaves += _read_section(path, key, node, place, notes)
        elif field is None:
            _note_unknown(key, section, notes, _engine_flag(section, key, table))
        elif leaf := read_node(field, key.span, node, place, notes):
            leaves.append(leaf)
    return leaves


def _engine_flag(section: str, key: Scalar, table: Table) -> str:
    """Name the option of an engine that somebody wrote as a key of `engine`, "" for none."""
    if not section.startswith("engine"):
        return ""
    kinds = [
        node.text
        for other, node in table.entries
        if other.text == "kind" and isinstance(node, Scalar)
    ]
    return flag_of_engine(key.text, kinds[0] if kinds else "")


def _note_unknown(key: Scalar, section: str | None, notes: Notes, engine_flag: str = "") -> None:
    path = bare(f"{section}.{key.text}" if section else key.text)
    odd = find_odd(key.text)
    if odd:
        notes.add(
            "KS006",
            f"the key {shown(key.text)} holds {odd}",
            key.span,
            path=path,
            help="type it again by hand",
            mend=_cleaned(key, section),
        )
        return
    suggestion = suggest_key(section, key.text)
    if engine_flag:
        suggestion = f"it belongs in `engine.args` as {engine_flag}"
    where = f" in `{section}`" if section else ""
    message = f"unknown key `{bare(key.text)}`{where}"
    notes.add(
        "KS101",
        f"{message}; {suggestion}" if suggestion else message,
        key.span,
        path=path,
        help=_keys_of(section),
        mend=None if engine_flag else _renamed(key, section),
    )


def _renamed(key: Scalar, section: str | None) -> Mend | None:
    """Offer the key of this section that was most likely meant."""
    name = similar_key(section, key.text)
    return Mend(key.span, name, "unsafe") if name and "\n" not in key.text else None


def _cleaned(key: Scalar, section: str | None) -> Mend | None:
    """Drop or replace what is odd in a key, if a key of this section is left."""
    plain = [plain_for(char) if find_odd(char) else char for char in key.text]
    name = "".join(char or "" for char in plain).strip()
    is_known = name in keys_of(section)
    return Mend(key.span, name) if is_known and key.is_plain and None not in plain else None


def _emptied(key: Scalar, node: Scalar) -> Mend | None:
    """Write `{}` for the nothing behind a key; a key without a colon is left to people."""
    span = node.span
    if node.text:
        return Mend(span, "{}")
    if span.line != key.span.line or span.column <= key.span.end_column:
        return None
    return Mend(Span(span.line, span.column, span.column), " {}")


def _keys_of(section: str | None) -> str:
    if section is None:
        return f"the sections are {', '.join(keys_of(None))}"
    return f"the keys of `{section}` are {', '.join(keys_of(section))}"


def _parents(values: Iterable[Node], notes: Notes) -> list[Scalar]:
    """Give the files that `extends` names, lowest first."""
    found: list[Scalar] = []
    for value in values:
        for item in value.items if isinstance(value, Items) else (value,):
            if isinstance(item, Scalar) and scalar_kind(item) == "str" and item.text:
                found.append(item)
            elif not isinstance(item, Broken):
                notes.add(
                    "KS004",
                    "`extends` takes the name of a file, or a list of names",
                    item.span,
                    path=EXTENDS,
                )
    return found


def _is_nothing(root: Node) -> bool:
    return isinstance(root, Broken) or (
        isinstance(root, Scalar) and root.is_plain and not root.text
    )


def _origin(name: str, span: Span | None) -> Origin:
    if span is None:
        return Origin("profile", name)
    return Origin("profile", name, span.line, span.column, span.end_column)
