"""The settings as a flat table: dotted path, kind of text, variable name, flag.

Everything that lists settings (sources, the command line, plan, explain) reads this table.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin

from pydantic import SecretStr, TypeAdapter
from pydantic.fields import FieldInfo

from .settings import FilePath, ModelPath, Section, Settings

ENV_PREFIX = "KIMI_SERVE_"

TextKind = Literal["bool", "int", "float", "str", "choice", "list", "mapping", "secret"]


@dataclass(frozen=True, slots=True)
class SettingField:
    """One leaf of `Settings`.

    `kind` says how a text is read; `item_kind` the same for the items of a list. `choices` are
    the allowed words of a choice (or of the items of a list). `flag` is the long option.
    """

    section: str
    name: str
    info: FieldInfo
    annotation: Any
    kind: TextKind
    item_kind: TextKind
    choices: tuple[str, ...]
    is_nullable: bool
    is_file_path: bool
    is_model_path: bool
    flag: str

    @property
    def path(self) -> str:
        return f"{self.section}.{self.name}"

    @property
    def env_name(self) -> str:
        return f"{ENV_PREFIX}{self.section}__{self.name}".upper()

    @property
    def negative_flag(self) -> str | None:
        """The option that switches a bool off; None for settings of another kind."""
        return f"--no-{self.flag.removeprefix('--')}" if self.kind == "bool" else None

    @property
    def parameter(self) -> str:
        """Name of the click parameter: an identifier."""
        return f"{self.section}__{self.name}"

    @property
    def help(self) -> str:
        return self.info.description or ""

    @property
    def default(self) -> Any:
        return self.info.default

    @property
    def is_secret(self) -> bool:
        return self.kind == "secret"

    @property
    def may_hold_secrets(self) -> bool:
        """Whether a value may hold a secret that nobody can tell from the rest."""
        return self.is_secret or self.path in ("engine.args", "engine.env")

    def validate(self, value: Any) -> Any:
        """Give `value` typed and checked against type and bounds; strict, no conversion.

        Raises pydantic.ValidationError.
        """
        return _adapter(self.path).validate_python(value, strict=True)


@cache
def _adapter(path: str) -> TypeAdapter[Any]:
    field = setting_fields()[path]
    annotated: Any = Annotated[field.info.annotation, field.info]
    return TypeAdapter(annotated)


def sections() -> dict[str, type[Section]]:
    """The sections of `Settings` by name, in order."""
    found: dict[str, type[Section]] = {}
    for name, info in Settings.model_fields.items():
        assert isinstance(info.annotation, type)
        assert issubclass(info.annotation, Section)
        found[name] = info.annotation
    return found


@cache
def setting_fields() -> Mapping[str, SettingField]:
    """All leaves by dotted path, in the order of the models."""
    return types.MappingProxyType(
        {
            field.path: field
            for section, model in sections().items()
            for field in (
                _describe(section, name, info) for name, info in model.model_fields.items()
            )
        }
    )


def _describe(section: str, name: str, info: FieldInfo) -> SettingField:
    inner, markers, is_nullable = _unwrap(info.annotation, list(info.metadata))
    kind, choices = _kind(inner)
    item_kind: TextKind = "str"
    if kind == "list":
        item, item_markers, _ = _unwrap(get_args(inner)[0], [])
        markers += item_markers
        item_kind, choices = _kind(item)
    extra = cast(dict[str, Any], info.json_schema_extra or {})
    flag = extra.get("flag") or f"--{section}-{name}".replace("_", "-")
    return SettingField(
        section=section,
        name=name,
        info=info,
        annotation=inner,
        kind=kind,
        item_kind=item_kind,
        choices=choices,
        is_nullable=is_nullable,
        is_file_path=any(isinstance(marker, FilePath) for marker in markers),
        is_model_path=any(isinstance(marker, ModelPath) for marker in markers),
        flag=str(flag),
    )


def _unwrap(annotation: Any, markers: list[Any]) -> tuple[Any, list[Any], bool]:
    """Take off Annotated and `| None`: (inner type, markers, whether None is allowed)."""
    is_nullable = False
    while True:
        origin = get_origin(annotation)
        if origin is Annotated:
            annotation, *found = get_args(annotation)
            markers = [*markers, *found]
        elif origin in (Union, types.UnionType):
            arms = [arm for arm in get_args(annotation) if arm is not type(None)]
            is_nullable = len(arms) < len(get_args(annotation))
            (annotation,) = arms
        else:
            return annotation, markers, is_nullable


def _kind(annotation: Any) -> tuple[TextKind, tuple[str, ...]]:
    if get_origin(annotation) is Literal:
        return "choice", tuple(str(word) for word in get_args(annotation))
    if get_origin(annotation) is tuple:
        return "list", ()
    if get_origin(annotation) is dict:
        return "mapping", ()
    if annotation is SecretStr:
        return "secret", ()
    plain: dict[Any, TextKind] = {bool: "bool", int: "int", float: "float", str: "str"}
    return plain[annotation], ()
