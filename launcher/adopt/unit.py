"""Reads a systemd unit: its variables, its files of them, and what it starts.

No shell runs an ExecStart: words are split at blanks, `${NAME}` is a variable anywhere, `$NAME`
only as a word of its own, and no `;` or `&&` ends anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from .words import EnvFile, Told, Variable, Word, assignment, literal, reference

_SECTION = re.compile(r"\[(?P<name>[A-Z][A-Za-z]*)\]\s*")
_FIRST_SECTIONS = ("Unit", "Service", "Install")
_STARTS = ("ExecStart", "ExecStartPre", "ExecStartPost")
_PREFIXES = "@-:+!|"
_BRACED = re.compile(r"\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)\}")
_WHOLE = re.compile(r"\$(?P<name>[A-Za-z_][A-Za-z0-9_]*)")
_ESCAPES = {"n": "\n", "t": "\t", "s": " ", "\\": "\\", '"': '"', "'": "'"}
_HEX = re.compile(r"x[0-9a-fA-F]{2}")
_SPECIFIER = re.compile(r"%(?P<letter>[A-Za-z%])")


@dataclass(slots=True)
class Unit:
    """What a unit says of the engine's process."""

    commands: list[tuple[Word, ...]] = field(default_factory=lambda: list[tuple[Word, ...]]())
    variables: list[Variable] = field(default_factory=lambda: list[Variable]())
    env_files: list[EnvFile] = field(default_factory=lambda: list[EnvFile]())


def looks_like_unit(text: str) -> bool:
    """Say whether a text begins with a section of systemd."""
    for line in text.splitlines():
        stripped = line.strip().removeprefix("\ufeff")
        if stripped and stripped[0] not in "#;":
            match = _SECTION.fullmatch(stripped)
            return match is not None and match["name"] in _FIRST_SECTIONS
    return False


def read_unit(text: str, told: Told) -> Unit:
    """Read the commands and the variables of a service; the rest is named in notes."""
    unit = Unit()
    for place, section, key, value in _entries(text):
        if section != "Service":
            continue
        if key == "Environment":
            if not value:
                unit.variables.clear()  # as systemd does
            texts = [Word(literal(word), place, unsure) for word, unsure in _words(value)]
            unit.variables += [each for each in map(assignment, texts) if each]
        elif key == "EnvironmentFile":
            name = Word(literal(value.removeprefix("-")), place)
            unit.env_files += [EnvFile(name, is_optional=value.startswith("-"))] if value else []
        elif key in _STARTS:
            if not value:
                unit.commands.clear()
            elif words := _command(value, place):
                unit.commands.append(words)
        else:
            told.left_out((Word(literal(f"{key}={value}"), place),), "it is about the unit")
    return unit


def _entries(text: str) -> Iterator[tuple[str, str, str, str]]:
    """Give place, section, key and value of each line, continued ones put together."""
    section, pending, start = "", "", 0
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip().removeprefix("\ufeff")
        if stripped[:1] in ("#", ";"):
            continue
        if stripped.endswith("\\"):
            start = start if pending else number
            pending += stripped[:-1] + " "
            continue
        whole, place = pending + stripped, f"line {start if pending else number}"
        pending = ""
        match = _SECTION.fullmatch(whole)
        if match:
            section = match["name"]
        elif "=" in whole:
            key, _, value = whole.partition("=")
            yield place, section, key.strip(), value.strip()


def _command(value: str, place: str) -> tuple[Word, ...]:
    """Read the words of a command, with its variables as references."""
    found: list[Word] = []
    for text, unsure in _words(value.lstrip(_PREFIXES)):
        whole = _WHOLE.fullmatch(text)
        if whole:
            found.append(Word(reference(whole["name"]), place, unsure))
            continue
        pieces: list[str] = []
        last = 0
        for match in re.finditer(r"\$\$|" + _BRACED.pattern, text):
            pieces.append(literal(text[last : match.start()]))
            pieces.append(reference(match["name"]) if match["name"] else "$")
            last = match.end()
        found.append(Word("".join([*pieces, literal(text[last:])]), place, unsure))
    return tuple(found)


def _words(value: str) -> Iterator[tuple[str, str]]:
    """Split a value at its blanks, without its quotes; what only systemd knows is unsure."""
    text, quote, is_word, index = "", "", False, 0
    while index < len(value):
        character = value[index]
        index += 1
        if character == "\\" and index < len(value):
            found = _HEX.match(value, index)
            text += chr(int(found[0][1:], 16)) if found else _ESCAPES.get(
                value[index], f"\\{value[index]}"
            )  # fmt: skip
            index += len(found[0]) if found else 1
            is_word = True
        elif quote and character == quote:
            quote = ""
        elif not quote and character in "\"'":
            quote, is_word = character, True
        elif not quote and character in " \t":
            if is_word:
                yield _specified(text)
            text, is_word = "", False
        else:
            text, is_word = text + character, True
    if is_word:
        yield _specified(text)


def _specified(text: str) -> tuple[str, str]:
    """Take `%%` for a percent sign; another specifier is known to systemd only."""
    named = [match[0] for match in _SPECIFIER.finditer(text) if match["letter"] != "%"]
    unsure = f"{named[0]} is known to systemd only" if named else ""
    return text.replace("%%", "%"), unsure
