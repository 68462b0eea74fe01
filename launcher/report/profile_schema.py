"""The JSON Schema of a profile, for editors and other validators: draft 2020-12.

Made from the settings table and true to `launcher.sources.profile`. What a schema of the parsed
values cannot say is listed in docs/lint.md.
"""

from __future__ import annotations

from typing import Any, cast

from kimi_serve.schemas.allowed_hosts import LONGEST_NAME
from kimi_serve.schemas.colour import NAMES
from kimi_serve.schemas.fields import BoundName, SettingField, TextKind, keys_of, setting_fields
from kimi_serve.schemas.settings import Settings

from ..sources.references import NAME

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_KEYWORDS: dict[BoundName, str] = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
}
_TYPES: dict[TextKind, str] = {"bool": "boolean", "int": "integer", "float": "number"}

# No two of these match the same characters, so a long text cannot make a matcher slow.
_PLAIN = r"[^$]|\$(?!\{|\$\{)|\$\$\{"
_REFERENCE = r"\$\{[A-Za-z_][A-Za-z0-9_]*\}"
_TEXT_PATTERN = rf"^(?:{_PLAIN}|{_REFERENCE})*$"
_REFERENCE_PATTERN = rf"^(?:{_PLAIN})*{_REFERENCE}(?:{_PLAIN}|{_REFERENCE})*$"
# `$` alone would let a line break follow in some dialects.
_END = r"(?!\n)$"


_NAME = {
    "pattern": rf"^{NAME.pattern}{_END}",
    "patternErrorMessage": "the bare name of a variable, without $ and braces",
}


def profile_schema() -> dict[str, Any]:
    """Give the schema as JSON-ready data."""
    return {
        "$schema": _DRAFT,
        "title": "kimi-serve profile",
        "description": (Settings.__doc__ or "").strip(),
        "type": "object",
        "properties": {"extends": _extends()} | {name: _section(name) for name in keys_of(None)},
        "additionalProperties": False,
        "$defs": {
            "text": {
                "type": "string",
                "pattern": _TEXT_PATTERN,
                "patternErrorMessage": "${ begins a reference: write ${NAME}, or $${ for itself",
            },
            "reference": {
                "description": "A text that ${NAME} variables are put into.",
                "type": "string",
                "pattern": _REFERENCE_PATTERN,
            },
            "secret": _secret(),
        },
    }


def _extends() -> dict[str, Any]:
    name = {"type": "string", "minLength": 1}
    return {
        "description": "Profiles that this one stands on, lowest first; relative to this file.",
        "anyOf": [name, {"type": "array", "items": name}],
    }


def _secret() -> dict[str, Any]:
    text = {"type": "string", "minLength": 1}
    return {
        "type": "object",
        "properties": {
            "env": {"description": "The variable that holds it."} | text | _NAME,
            "file": {"description": "The file that holds it."} | text,
        },
        "minProperties": 1,
        "maxProperties": 1,
        "additionalProperties": False,
    }


def _section(name: str) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    for key in keys_of(name):
        path = f"{name}.{key}"
        field = setting_fields().get(path)
        properties[key] = _section(path) if field is None else _setting(field)
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _setting(field: SettingField) -> dict[str, Any]:
    flags = " / ".join(f"`{flag}`" for flag in (field.flag, field.negative_flag) if flag)
    default: Any = field.default
    value = _value(field)
    if field.is_nullable:
        value = {"anyOf": [value, {"type": "null"}]}
    return {
        "description": field.help,
        "markdownDescription": f"{field.help}\n\nFlag {flags}, variable `{field.env_name}`.",
        "default": list(cast(tuple[str, ...], default)) if isinstance(default, tuple) else default,
    } | value


def _value(field: SettingField) -> dict[str, Any]:
    """Give what the setting takes when it is not null."""
    least = field.bound("min_length")
    if field.kind == "list":
        # Only a list whose items are folders refuses the empty text.
        item = _text(field.choices, field.path, 1 if field.is_file_path else None)
        return {"type": "array", "items": item} | ({"minItems": least} if least else {})
    if field.kind == "mapping":
        return {"type": "object", "additionalProperties": {"$ref": "#/$defs/text"}}
    if field.kind == "secret":
        return {"$ref": "#/$defs/secret"}
    if field.kind in ("str", "choice"):
        return _text(field.choices, field.path, least)
    bounds = {keyword: field.bound(bound) for bound, keyword in _KEYWORDS.items()}
    return {"type": _TYPES[field.kind]} | {
        keyword: bound for keyword, bound in bounds.items() if bound is not None
    }


def _text(choices: tuple[str, ...], path: str, least: int | None) -> dict[str, Any]:
    arms = [{"enum": list(choices)}] if choices else CHECKED_TEXTS.get(path)
    if arms:
        return {"anyOf": [*arms, {"$ref": "#/$defs/reference"}]}
    return {"$ref": "#/$defs/text"} | ({"minLength": least} if least else {})


def _any_case(word: str) -> str:
    return "".join(f"[{letter.upper()}{letter}]" for letter in word)


_LABEL = "(?!-)[A-Za-z0-9_-]{1,63}(?<!-)"
_NUMBER = "(?:[0-9]+|0[xX][0-9A-Fa-f]*)"
_HOST: list[dict[str, Any]] = [
    {
        "type": "string",
        "pattern": rf"^(?!(?:.*\.)?{_NUMBER}{_END}){_LABEL}(?:\.{_LABEL})*{_END}",
        "maxLength": LONGEST_NAME,
    },
    # Which numbers an address has, only the reader judges.
    {"type": "string", "pattern": rf"^{_NUMBER}(?:\.{_NUMBER}){{0,3}}{_END}"},
    {
        "type": "string",
        "format": "ipv6",
        "pattern": rf"^[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(%[^%]+)?{_END}",
    },
]
# What the validators of these texts take, in the words of a schema; a test wants one for each.
CHECKED_TEXTS: dict[str, list[dict[str, Any]]] = {
    "image.background": [
        {"enum": list(NAMES)},
        {
            "type": "string",
            "pattern": (
                rf"^(?:#[0-9a-fA-F]{{3}}|#[0-9a-fA-F]{{6}}|{'|'.join(map(_any_case, NAMES))}){_END}"
            ),
            "patternErrorMessage": "not a colour: write #rrggbb, #rgb or a basic CSS name",
        },
    ],
    "engine.version": [
        {
            "type": "string",
            "pattern": r"^\s*[vV]?[0-9]{1,9}(?![0-9])[0-9A-Za-z.+_-]*\s*$",
            "patternErrorMessage": "no version: write the number of a release",
        }
    ],
    "gpu.ids": [
        {
            "type": "string",
            "pattern": rf"^(?:[0-9]{{1,4}}|(?:GPU|MIG)-[0-9A-Za-z/-]+){_END}",
            "patternErrorMessage": "no GPU: write an index or a UUID",
        }
    ],
    "server.admin_host": _HOST,
    "server.host": _HOST,
}
