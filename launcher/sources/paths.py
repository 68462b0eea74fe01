"""Makes paths absolute at the source that wrote them, so that they mean one place everywhere."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from kimi_serve.schemas.fields import SettingField
from kimi_serve.schemas.hub_id import is_hub_id

from .characters import shown
from .layers import RefusedError

_URL = re.compile(r"\s*[A-Za-z][A-Za-z0-9+.-]*://")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a source may look at besides its own text.

    `folder` is where its relative paths start. `env` is None for a reader that must depend on
    nothing but the text: references are then checked in form only.
    """

    folder: str
    env: Mapping[str, str] | None


def working_folder() -> str:
    """Give the working directory, "." when it was deleted."""
    try:
        return os.getcwd()
    except OSError:
        return "."


def absolute(text: str, place: Surroundings) -> str:
    """Expand `~` and make `text` absolute; RefusedError when it names no place.

    Without `env` a home stays `~`: whose it is depends on who runs this.
    """
    if not text:
        raise RefusedError("KS104", "a path is empty")
    if text.startswith("~"):
        if place.env is None:
            return text
        text = _expand_home(text, place.env)
    return os.path.normpath(os.path.join(place.folder, text))


def _expand_home(text: str, env: Mapping[str, str]) -> str:
    home = env.get("HOME", "")
    is_own = text == "~" or text.startswith("~/")
    expanded = f"{home}{text[1:]}" if is_own and home else _by_account(text)
    if expanded.startswith("~"):
        raise RefusedError("KS104", f"the home directory of {shown(text)} is not known")
    return expanded


def _by_account(text: str) -> str:
    """Expand by the machine's list of accounts; `~` alone is the account that runs this."""
    name, slash, rest = text[1:].partition("/")
    try:
        account = pwd.getpwnam(name) if name else pwd.getpwuid(os.getuid())
    except (KeyError, ValueError):
        return text
    return f"{account.pw_dir}{slash}{rest}"


def place_value(field: SettingField, value: Any, place: Surroundings) -> Any:
    """Give the value of a setting with its paths made absolute; other values as they are."""
    try:
        if field.is_file_path and isinstance(value, tuple):
            return tuple(absolute(item, place) for item in cast(tuple[str, ...], value))
        if field.is_file_path and isinstance(value, str):
            return absolute(value, place)
        if field.is_program and isinstance(value, str) and ("/" in value or value[:1] in ("~", "")):
            return absolute(value, place)
        if field.is_model_path and isinstance(value, str) and value:
            return _place_model(value, place)
    except RefusedError as error:
        raise RefusedError(error.rule, f"`{field.path}`: {error.message}", error.help) from None
    return value


def _place_model(text: str, place: Surroundings) -> str:
    """Keep a hub id, unless a directory of that name is there; everything else is a path."""
    if _URL.match(text):
        # Not repeated: it may hold a password, and a path made of it is told from no other.
        raise RefusedError(
            "KS104", "a URL is no checkpoint", "write a directory, or the hub id org/name alone"
        )
    candidate = absolute(text, place)
    if is_hub_id(text) and not os.path.isdir(candidate):
        return text
    return candidate
