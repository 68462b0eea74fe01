"""What a profile takes from outside itself: `${NAME}` in texts, and secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from pydantic import SecretStr

from kimi_serve.schemas.fields import SettingField

from .characters import shown
from .layers import RefusedError
from .paths import Surroundings, absolute
from .scalars import REDACTED, refuse_odd

_REFERENCE = re.compile(r"\$\$\{|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)\}|(?P<broken>\$\{)")
# Only what looks like a variable or a path is ever repeated: it may be the secret itself.
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")
_FILE = re.compile(r"[\w.~-]*(/[\w.-]+)+", re.ASCII)
_MAX_SECRET_BYTES: Final = 64 * 1024


def expand(text: str, env: Mapping[str, str] | None) -> str | None:
    """Replace `${NAME}`, and `$${` by `${`; None when that needs an `env` and there is none.

    Raises RefusedError for a variable that is not set or is empty.
    """
    pieces: list[str] = []
    last = 0
    is_known = True
    for match in _REFERENCE.finditer(text):
        pieces += [text[last : match.start()], "${"]
        last = match.end()
        if match["broken"]:
            raise RefusedError(
                "KS104",
                f"{shown(text)} has a ${{ that is not ${{NAME}}",
                "write $${ for the two characters themselves",
            )
        if match["name"] and env is None:
            is_known = False
        elif match["name"] and env is not None:
            pieces[-1] = _look_up(match["name"], env)
    return "".join([*pieces, text[last:]]) if is_known else None


def _look_up(name: str, env: Mapping[str, str]) -> str:
    value = env.get(name, "")
    if not value:
        state = "empty" if name in env else "not set"
        raise RefusedError("KS104", f"the variable {name} is {state}", f"set {name}")
    return value


def secret_from_variable(field: SettingField, name: str, place: Surroundings) -> SecretStr:
    """Give the secret that a variable holds; a stand-in when there is no `env` to look into."""
    subject = f"the variable {name}" if _VARIABLE.fullmatch(name) else "the variable named here"
    if place.env is None:
        return SecretStr(REDACTED)
    value = place.env.get(name, "").strip(" \t\r\n")
    if not value:
        state = "empty" if name in place.env else "not set"
        raise RefusedError("KS104", f"`{field.path}`: {subject} is {state}")
    refuse_odd(field, value)
    return SecretStr(value)


def secret_from_file(field: SettingField, path: str, place: Surroundings) -> SecretStr:
    """Give the secret that a file holds, without its last line break; None as above."""
    subject = f"the file {path}" if _FILE.fullmatch(path) else "the file named here"
    if place.env is None:
        return SecretStr(REDACTED)
    try:
        with open(absolute(path, place), "rb") as file:
            data = file.read(_MAX_SECRET_BYTES + 1)
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise RefusedError("KS104", f"`{field.path}`: {subject} is not UTF-8") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "not a path"
        raise RefusedError("KS104", f"`{field.path}`: {subject} cannot be read: {reason}") from None
    if len(data) > _MAX_SECRET_BYTES:
        raise RefusedError("KS104", f"`{field.path}`: {subject} is too large for a secret")
    value = text.removesuffix("\n").removesuffix("\r")
    if not value:
        raise RefusedError("KS104", f"`{field.path}`: {subject} is empty")
    refuse_odd(field, value)
    return SecretStr(value)
