"""Explains one setting: what it is, what it may be, and everyone who set it."""

from __future__ import annotations

from collections.abc import Iterator

from kimi_serve.schemas.errors import ConfigError
from kimi_serve.schemas.fields import BoundName, SettingField, sections, setting_fields
from kimi_serve.schemas.plan import LoadedSettings, SettingValue

from ..engines.equivalents import engine_words
from ..secrets.given import secrets_of_settings
from ..sources.suggest import suggest_path
from .redact import redacted
from .words import columns, show

_BOUNDS: dict[BoundName, str] = {
    "ge": ">=",
    "gt": ">",
    "le": "<=",
    "lt": "<",
    "min_length": "length >=",
}


def explain_text(loaded: LoadedSettings, path: str) -> str:
    """Give everything about the setting at dotted `path`; raises ConfigError for an unknown one."""
    field = setting_fields().get(path)
    if field is None:
        raise _unknown(path)
    value = next(value for value in redacted(loaded.values) if value.path == path)
    facts = columns(
        [
            ("value", show(value.value)),
            ("set by", str(value.origin)),
            ("type", _type(field)),
            ("default", show(field.default)),
            ("flag", _flag(field)),
            ("env", field.env_name),
            ("yaml", _yaml(path)),
        ]
    )
    engines = columns([(kind, words) for kind, words in engine_words(path)])
    told = ["what the engines are told", *engines, ""] if engines else []
    lines = [path, f"  {field.help}", "", *facts, "", *told, "layers, the winner first"]
    lines += _layers(value)
    return secrets_of_settings(loaded).hide("\n".join(lines))


def _yaml(path: str) -> str:
    *sections, name = path.split(".")
    return "".join(f"{section}: {{" for section in sections) + f"{name}: ..." + "}" * len(sections)


def _unknown(path: str) -> ConfigError:
    section = sections().get(path)
    if section is not None:
        return ConfigError(
            f"{path} is a section, not a setting",
            hint="its settings: " + ", ".join(f"{path}.{name}" for name in section.model_fields),
        )
    meant = suggest_path(path)
    hint = f"did you mean {meant}?" if meant else "kimi-serve plan lists all settings"
    return ConfigError(f"there is no setting {path!r}", hint=hint)


def _type(field: SettingField) -> str:
    kind: str = field.kind
    if kind == "choice":
        kind = " | ".join(field.choices)
    elif kind == "list":
        kind = f"list of {' | '.join(field.choices) or field.item_kind}"
    elif kind == "mapping":
        kind = "mapping of str to str"
    parts = [kind + (" or null" if field.is_nullable else ""), *_bounds(field)]
    return ", ".join(parts)


def _bounds(field: SettingField) -> Iterator[str]:
    for name, sign in _BOUNDS.items():
        bound = field.bound(name)
        if bound is not None:
            yield f"{sign} {bound:g}" if isinstance(bound, float) else f"{sign} {bound}"


def _flag(field: SettingField) -> str:
    return " / ".join(filter(None, (field.flag, field.negative_flag)))


def _layers(value: SettingValue) -> list[str]:
    return columns(
        [(show(value.value), str(value.origin))]
        + [(show(old), str(origin)) for origin, old in value.overrode]
    )
