"""One line that can be pasted into sh and starts what a plan starts; secrets as `${NAME}`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

from kimi_serve.schemas.engine_launch import EngineFlag, EngineLaunch, EngineVariable
from kimi_serve.schemas.fields import setting_fields
from kimi_serve.schemas.plan import LaunchPlan, SettingValue
from kimi_serve.schemas.provenance import DEFAULT

from ..secrets.given import secrets_of_settings

# `env` takes every word with "=" in front of the command for a variable.
_AS_COMMAND = ("sh", "-c", shlex.quote('exec "$0" "$@"'))


def shell_line(plan: LaunchPlan) -> str:
    """Give the engine's own command, or for the built-in workers that of kimi-serve."""
    words = _own_words(plan) if plan.launch is None else _engine_words(plan.launch)
    # A secret that another setting repeats has no variable to stand for it.
    return secrets_of_settings(plan).hide(" ".join(words))


def _engine_words(launch: EngineLaunch) -> Iterator[str]:
    if launch.variables:
        yield "env"
    for variable in launch.variables:
        if variable.value is None:
            yield "-u"
            yield shlex.quote(variable.name)
    yield from (quoted_variable(each) for each in launch.variables if each.value is not None)
    if launch.variables and "=" in launch.head[0]:
        yield from _AS_COMMAND
    yield from quoted_words(launch.head)
    for flag in launch.flags:
        yield from quoted_flag(flag)


def quoted_words(words: Iterable[str]) -> list[str]:
    """Quote words for sh."""
    return [shlex.quote(word) for word in words]


def quoted_flag(flag: EngineFlag) -> list[str]:
    """Quote a flag with its values; a shell expands the names of secrets."""
    values = [f'"${{{name}}}"' for name in flag.secrets] or quoted_words(flag.values)
    if flag.joined:
        return [f"{shlex.quote(flag.name)}={values[0]}"]
    return [*quoted_words(filter(None, (flag.name,))), *values]


def quoted_variable(variable: EngineVariable) -> str:
    """Quote an assignment."""
    value = f'"${{{variable.secret}}}"' if variable.secret else shlex.quote(variable.value or "")
    return f"{shlex.quote(variable.name)}={value}"


def _own_words(plan: LaunchPlan) -> Iterator[str]:
    """Say every setting that is not its default on kimi-serve's own command line."""
    yield "kimi-serve"
    for value in plan.values:
        if value.origin != DEFAULT:
            yield from quoted_words(_setting_words(plan, value))


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
