"""One line that can be pasted into sh and starts what a plan starts; secrets as `${NAME}`."""

from __future__ import annotations

import json
import shlex
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

from kimi_serve.schemas.engine_launch import EngineFlag, EngineLaunch, EngineVariable
from kimi_serve.schemas.fields import setting_fields
from kimi_serve.schemas.plan import LaunchPlan, SettingValue
from kimi_serve.schemas.provenance import DEFAULT

from ..secrets.given import secrets_of_settings
from ..sources.references import pieces

Quote = Callable[[str], str]

# `env` takes every word with "=" in front of the command for a variable.
_AS_COMMAND = ("sh", "-c", shlex.quote('exec "$0" "$@"'))
# A command substitution loses the line breaks at its end, so the dot is taken off afterwards.
_LINE_BREAK = "_nl"
_SET_LINE_BREAK = f'{_LINE_BREAK}="$(printf \'\\n.\')"; {_LINE_BREAK}="${{{_LINE_BREAK}%.}}"; '


def shell_line(plan: LaunchPlan) -> str:
    """Give the engine's own command, or for the built-in workers that of kimi-serve."""
    # A secret that another setting repeats has no variable to stand for it.
    return secrets_of_settings(plan).hide(_line(plan))


def shell_warnings(plan: LaunchPlan) -> Iterator[str]:
    """Say where the line does not start what the plan starts."""
    line, known = _line(plan), secrets_of_settings(plan)
    if known.hide(line) != line:
        yield (
            "the line is not what would be started: a secret is repeated in it, and *** stands "
            "there instead"
        )
    launch = plan.launch
    if launch is None:
        return
    names = [name for flag in launch.flags for name in flag.unnamed]
    names += [each.secret for each in launch.variables if each.secret and not each.written]
    held = {*plan.references.values()}
    for name in dict.fromkeys(names):
        if name not in held:
            shown = known.hide(name)
            yield f"set {shown} before: no variable of that name holds what it stands for"


def _line(plan: LaunchPlan) -> str:
    words = _own_words(plan) if plan.launch is None else _engine_words(plan.launch)
    line = " ".join(words)
    return f"{_SET_LINE_BREAK}{line}" if f'"${{{_LINE_BREAK}}}"' in line else line


def _engine_words(launch: EngineLaunch) -> Iterator[str]:
    if launch.variables:
        yield "env"
    for variable in launch.variables:
        if variable.value is None:
            yield "-u"
            yield for_sh(variable.name)
    yield from (variable_word(each, for_sh) for each in launch.variables if each.value is not None)
    if launch.variables and "=" in launch.head[0]:
        yield from _AS_COMMAND
    yield from map(for_sh, launch.head)
    for flag in launch.flags:
        yield from flag_words(flag, for_sh)


def for_sh(text: str) -> str:
    """Quote a word for any sh, on one line."""
    if not _has_controls(text):
        return shlex.quote(text)
    return f'"${{{_LINE_BREAK}}}"'.join(_printed(part) for part in text.split("\n")) or "''"


def _printed(text: str) -> str:
    if not text or not _has_controls(text):
        return shlex.quote(text) if text else ""
    escaped = text.replace("\\", "\\\\").replace("%", "%%")
    escaped = "".join(
        "".join(f"\\{byte:03o}" for byte in character.encode()) if _is_control(character)
        else character
        for character in escaped
    )  # fmt: skip
    return f'"$(printf -- {shlex.quote(escaped)})"'


def on_one_line(text: str) -> str:
    """Quote a word for a reader: control characters as in `$'...'`."""
    if not _has_controls(text):
        return shlex.quote(text)
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    shown = [_escape(each) if _is_control(each) else each for each in escaped]
    return f"$'{''.join(shown)}'"


def _escape(character: str) -> str:
    plain = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(character)
    return plain or f"\\u{ord(character):04x}"


def _has_controls(text: str) -> bool:
    return any(map(_is_control, text))


def _is_control(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Zl", "Zp")


def flag_words(flag: EngineFlag, quote: Quote) -> list[str]:
    """Quote a flag with its values; a shell expands the names of secrets."""
    values = [_expanded(text, quote) for text in flag.secrets] or [*map(quote, flag.values)]
    if flag.joined:
        return [f"{quote(flag.name)}={values[0]}"]
    return [*map(quote, filter(None, (flag.name,))), *values]


def variable_word(variable: EngineVariable, quote: Quote) -> str:
    """Quote an assignment."""
    text = variable.shown or ""
    value = _expanded(text, quote) if variable.secret else quote(text)
    return f"{quote(variable.name)}={value}"


def _expanded(text: str, quote: Quote) -> str:
    return "".join(f'"${{{name}}}"' if name else quote(part) for part, name in pieces(text))


def _own_words(plan: LaunchPlan) -> Iterator[str]:
    """Say every setting that is not its default on kimi-serve's own command line."""
    yield "kimi-serve"
    for value in plan.values:
        if value.origin != DEFAULT:
            yield from map(for_sh, _setting_words(plan, value))


def _setting_words(plan: LaunchPlan, value: SettingValue) -> Iterator[str]:
    field = setting_fields()[value.path]
    if field.is_secret and value.value is not None:
        name = plan.references.get(value.path, field.env_name)
        yield from ("--set", f"{value.path}={{env: {name}}}")
    elif value.value is None or field.kind in ("list", "mapping"):
        yield from ("--set", f"{value.path}={json.dumps(_escaped(value.value))}")
    elif field.kind == "bool":
        yield field.flag if value.value else str(field.negative_flag)
    elif str(value.value).startswith("-"):
        yield f"{field.flag}={value.value}"
    else:
        yield from (field.flag, str(value.value))


def _escaped(value: Any) -> Any:
    """Write `${` so that it stays what it is where references are read."""
    if isinstance(value, str):
        return value.replace("${", "$${")
    if isinstance(value, dict):
        table = cast("dict[str, Any]", value)
        return {name: _escaped(item) for name, item in table.items()}
    if isinstance(value, (list, tuple)):
        return [_escaped(item) for item in cast("Sequence[Any]", value)]
    return value
