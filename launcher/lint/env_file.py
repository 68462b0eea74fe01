"""Reads `--env-file`: KEY=VALUE lines, and where each variable stands."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from kimi_serve.schemas.errors import ConfigError
from kimi_serve.schemas.provenance import Origin

from ..sources.characters import printable

_LINE = re.compile(r"\s*(?:export\s+)?(?P<name>[^\s=#][^=]*?)(?P<blanks>\s*)=(?P<value>.*)")


@dataclass(frozen=True, slots=True)
class EnvFile:
    """The variables of one file, the last of a name winning, and their places."""

    values: Mapping[str, str]
    places: Mapping[str, Origin]


def read_env_file(data: bytes, name: str) -> EnvFile:
    """Read a file as docker does, with quotes around a value taken off.

    Raises ConfigError, which repeats no value, for a line that sets nothing.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{printable(name)}: byte {error.start} is not UTF-8") from None
    values: dict[str, str] = {}
    places: dict[str, Origin] = {}
    for number, line in enumerate(re.split(r"\r\n|\r|\n", text), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise ConfigError(f"{printable(name)}:{number}: this line is not KEY=VALUE")
        key = match["name"]
        if match["blanks"]:
            raise ConfigError(
                f"{printable(name)}:{number}: a blank stands before the `=`; docker refuses that",
                hint="write NAME=VALUE",
            )
        values[key] = _unquoted(match["value"])
        first, last = match.span("name")
        places[key] = Origin("env-file", printable(name), number, first + 1, last + 1)
    return EnvFile(values, places)


def _unquoted(text: str) -> str:
    word = text.strip(" \t")
    if len(word) >= 2 and word[0] == word[-1] and word[0] in "'\"":
        return word[1:-1]
    return text
