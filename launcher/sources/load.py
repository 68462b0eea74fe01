"""Stacks the sources and builds the settings, once, with the origin of every value.

Lowest first: built-in defaults, profiles (parents before the files that extend them), upstream's
switch in the inherited environment, `KIMI_SERVE_*` variables, explicit flags.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from pydantic import SecretStr

from kimi_serve.schemas.errors import ConfigError
from kimi_serve.schemas.fields import SettingField, setting_fields, settings_of
from kimi_serve.schemas.findings import Finding
from kimi_serve.schemas.plan import LoadedSettings, SettingValue
from kimi_serve.schemas.provenance import DEFAULT, Origin
from kimi_serve.schemas.vocabulary import HIDDEN

from .environment import read_engine_environment, read_environment
from .flags import read_flags
from .layers import Layer, Leaf
from .profile import read_profiles
from .references import refers


@dataclass(frozen=True, slots=True)
class Layers:
    """All layers, lowest first, before any of them wins."""

    layers: tuple[Layer, ...]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What all layers have to say, in their order, each thing once."""
        return tuple(dict.fromkeys(finding for layer in self.layers for finding in layer.findings))


def read_layers(
    profiles: Sequence[str | Path] = (),
    env: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
    set_items: Sequence[str] = (),
) -> Layers:
    """Read every source; what is wrong is in the findings.

    Without `env` no variable is read at all, also not those that a profile refers to.
    """
    layers = list(read_profiles(profiles, env))
    if env is not None:
        layers += [read_engine_environment(env), read_environment(env)]
    layers.append(read_flags(flags or {}, set_items, env))
    return Layers(tuple(layers))


def load_settings(
    profiles: Sequence[str | Path] = (),
    env: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
    set_items: Sequence[str] = (),
) -> LoadedSettings:
    """Read and merge every source; ConfigError with all findings when there is an error."""
    return merge(read_layers(profiles, env or {}, flags, set_items))


def merge(layers: Layers) -> LoadedSettings:
    """Let the highest layer win each setting; ConfigError when any layer holds an error."""
    findings = layers.findings
    errors = sum(finding.severity == "error" for finding in findings)
    if errors:
        noun = "error" if errors == 1 else "errors"
        raise ConfigError(f"{errors} {noun} in the configuration", findings=findings)
    histories = _histories(layers)
    winners = {leaf.path: leaf for layer in layers.layers for leaf in layer.leaves}
    sections: dict[str, Any] = {}
    for path, field in setting_fields().items():
        if path in histories:
            section = sections
            for name in field.section.split("."):
                section = section.setdefault(name, {})
            section[field.name] = histories[path][0][1]
    return LoadedSettings(
        settings=settings_of(sections),
        values=tuple(
            _setting_value(field, histories.get(path, []))
            for path, field in setting_fields().items()
        ),
        findings=findings,
        items={path: leaf.items for path, leaf in winners.items() if leaf.items},
        entries={path: leaf.entries for path, leaf in winners.items() if leaf.entries},
        references=dict(_references(winners.values())),
        written=dict(_written(winners.values())),
    )


def _references(leaves: Iterable[Leaf]) -> Iterator[tuple[str, str]]:
    """Give the variables that secrets were read from."""
    for leaf in leaves:
        is_own = leaf.origin.kind == "env" and setting_fields()[leaf.path].is_secret
        variable = leaf.origin.name if is_own else leaf.variable
        if variable:
            yield leaf.path, variable


def _written(leaves: Iterable[Leaf]) -> Iterator[tuple[tuple[str, int | str], str]]:
    """Give the items and entries that refer to variables, as they are written."""
    for leaf in leaves:
        if not (leaf.items or leaf.entries):
            continue  # a source that has no places reads no references
        raw: Any = leaf.raw
        parts: list[tuple[int | str, Any]] = []
        parts += cast("dict[str, Any]", raw).items() if leaf.entries else ()
        parts += enumerate(cast("list[Any]", raw)) if leaf.items else ()
        for key, text in parts:
            if isinstance(text, str) and refers(text):
                yield (leaf.path, key), text


def _histories(layers: Layers) -> dict[str, list[tuple[Origin, Any]]]:
    """Give who set each path to what, the winner first."""
    histories: dict[str, list[tuple[Origin, Any]]] = {}
    for layer in layers.layers:
        for leaf in layer.leaves:
            histories.setdefault(leaf.path, []).insert(0, (leaf.origin, leaf.value))
    return histories


def _setting_value(field: SettingField, history: list[tuple[Origin, Any]]) -> SettingValue:
    whole = [*history, (DEFAULT, field.default)]
    (origin, value), *overrode = [(origin, presentable(value)) for origin, value in whole]
    return SettingValue(field.path, value, origin, tuple(overrode))


def presentable(value: Any) -> Any:
    """Give a typed value as JSON has it, a secret as "***"."""
    if isinstance(value, SecretStr):
        return HIDDEN
    if isinstance(value, tuple):
        return list(cast(tuple[object, ...], value))
    return value
