"""One profile for several engines: the settings of each, and what belongs to one of them only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kimi_serve.schemas.errors import ConfigError
from kimi_serve.schemas.fields import setting_fields
from kimi_serve.schemas.plan import LaunchPlan, LoadedSettings, SettingValue
from kimi_serve.schemas.provenance import DEFAULT, Origin
from kimi_serve.schemas.vocabulary import ENGINES, EngineName

from .pipeline import make_plan
from .sources.load import presentable

# Written in the words of one engine, or about its installation.
OWN_WORDS = ("engine.args", "engine.env", "engine.version", "engine.python")


@dataclass(frozen=True, slots=True)
class Compared:
    """The plan for one engine, and the settings that were left out of it as another's."""

    plan: LaunchPlan
    left_out: tuple[str, ...]


def engine_names(text: str) -> tuple[EngineName, ...]:
    """Read the engines of `--compare`; raises ConfigError for what is none."""
    words = [word.strip() for word in text.split(",")]
    names: tuple[EngineName, ...] = tuple(
        kind for word in words for kind in ENGINES if str(kind) == word
    )
    if len(names) != len(words) or len(set(names)) < 2:
        raise ConfigError(
            f"--compare takes two engines, not {text!r}", hint=f"write {','.join(ENGINES)}"
        )
    return names


def compare(
    loaded: LoadedSettings, kinds: Sequence[EngineName], env: Mapping[str, str]
) -> tuple[Compared, ...]:
    """Plan the same settings for each engine."""
    return tuple(
        Compared(make_plan(for_engine(loaded, kind), env), left_out(loaded, kind)) for kind in kinds
    )


def left_out(loaded: LoadedSettings, kind: EngineName) -> tuple[str, ...]:
    """Name the settings that somebody made for another engine than `kind`."""
    if loaded.settings.engine.kind == kind:
        return ()
    return tuple(path for path in OWN_WORDS if loaded.origin(path) != DEFAULT)


def for_engine(loaded: LoadedSettings, kind: EngineName) -> LoadedSettings:
    """Give the settings as they would be with `engine.kind: kind`."""
    if loaded.settings.engine.kind == kind:
        return loaded
    fields = setting_fields()
    dropped = {path: fields[path].default for path in OWN_WORDS}
    changes = {fields[path].name: default for path, default in dropped.items()}
    engine = loaded.settings.engine.model_copy(update={"kind": kind, **changes})
    return replace(
        loaded,
        settings=loaded.settings.model_copy(update={"engine": engine}),
        values=tuple(_value(value, kind, dropped) for value in loaded.values),
        findings=tuple(found for found in loaded.findings if found.path not in dropped),
        items={path: places for path, places in loaded.items.items() if path not in dropped},
        entries={path: places for path, places in loaded.entries.items() if path not in dropped},
    )


def _value(value: SettingValue, kind: EngineName, dropped: Mapping[str, object]) -> SettingValue:
    if value.path == "engine.kind":
        return SettingValue(value.path, kind, Origin("flag", "--compare"))
    if value.path in dropped:
        return SettingValue(value.path, presentable(dropped[value.path]), DEFAULT)
    return value
