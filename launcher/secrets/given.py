"""The secrets of what was given to a command: texts, variables, command line, and the settings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import yaml

from kimi_serve.schemas.plan import LaunchPlan, LoadedSettings

from .known import Known
from .names import is_secret_name
from .places import find_places
from .shapes import parts_of, spelt_parts
from .trees import secrets_of


def secrets_of_settings(settings: LaunchPlan | LoadedSettings) -> Known:
    """Give the secrets of all settings, also overridden ones, to find where they are repeated."""
    found: set[str] = set()
    for value in settings.values:
        for one in (value.value, *(old for _, old in value.overrode)):
            found |= secrets_of(one)
    server = settings.settings.server
    keys = filter(None, (server.api_key, server.previous_api_key))
    if isinstance(settings, LaunchPlan) and settings.launch is not None:
        found |= set(settings.launch.secrets())  # also the second of several keys
    return Known(found | {key.get_secret_value() for key in keys})


def secrets_outside(
    env: Mapping[str, str], flags: Mapping[str, object], set_items: Iterable[str]
) -> Known:
    """Give the secrets of variables and of the command line."""
    values = secrets_of(dict(env)) | secrets_of(dict(flags))
    for item in set_items:
        path, _, text = item.partition("=")
        values |= {*parts_of(item), *secrets_of_text(text, env)}
        if is_secret_name(path):
            values |= {*spelt_parts(text)}
    return Known(values)


def secrets_of_text(text: str, env: Mapping[str, str]) -> Iterator[str]:
    """Give the secrets of a text that may be YAML, and of the variables it takes some from."""
    try:
        places = find_places(text)
    # The pure Python scanner lets the latter two escape.
    except (yaml.YAMLError, ValueError, OverflowError):
        yield from secrets_of(text)
    else:
        yield from places.values
        yield from (env[name] for name in places.variables if name in env)
