"""The settings as a flat table: dotted path, kind of text, variable name, flag.

Everything that lists settings (sources, the command line, plan, explain) reads this table.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from math import isfinite
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin

from pydantic import AfterValidator, SecretStr, TypeAdapter
from pydantic.fields import FieldInfo

from .settings import FilePath, ModelPath, ProgramPath, Section, Settings

ENV_PREFIX = "KIMI_SERVE_"
_EXACT = 2**53  # every whole number below is a float

BoundName = Literal["ge", "gt", "le", "lt", "min_length"]
TextKind = Literal["bool", "int", "float", "str", "choice", "list", "mapping", "secret"]


@dataclass(frozen=True, slots=True)
class SettingField:
    """One leaf of `Settings`. `section` is dotted for a section inside another.

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
    is_program: bool
    flag: str

    @property
    def path(self) -> str:
        return f"{self.section}.{self.name}"

    @property
    def env_name(self) -> str:
        return f"{ENV_PREFIX}{self.parameter}".upper()

    @property
    def negative_flag(self) -> str | None:
        """The option that switches a bool off; None for settings of another kind."""
        return f"--no-{self.flag.removeprefix('--')}" if self.kind == "bool" else None

    @property
    def parameter(self) -> str:
        """Name of the click parameter: an identifier."""
        return self.path.replace(".", "__")

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

    @property
    def is_checked(self) -> bool:
        """Whether its words are judged one by one: none may be left open."""
        markers = self.info.metadata
        return bool(self.choices) or any(isinstance(each, AfterValidator) for each in markers)

    def bound(self, name: BoundName) -> Any:
        """Give a bound that the setting was declared with, None without it."""
        markers = self.info.metadata
        bounds = (getattr(marker, name, None) for marker in markers)
        return next((bound for bound in bounds if bound is not None), None)

    def validate(self, value: Any) -> Any:
        """Give `value` typed and checked against type and bounds; strict, no conversion.

        Raises pydantic.ValidationError.
        """
        if self.kind == "float" and type(value) is int and abs(value) < _EXACT:
            value = float(value)
        if is_plainly_valid(self, value):
            return value
        return _adapter(self.path).validate_python(value, strict=True)


def is_plainly_valid(field: SettingField, value: Any) -> bool:
    """Say whether a value is valid for sure and stays as it is, without building a validator.

    Building one for each setting takes longer than all the rest of `lint`. What is not plain is
    left to pydantic, as is everything that it has to say.
    """
    types_of_kind: dict[TextKind, type] = {
        "bool": bool, "int": int, "float": float, "str": str, "choice": str, "list": tuple,
        "mapping": dict, "secret": SecretStr,
    }  # fmt: skip
    if value is None:
        return field.is_nullable
    if type(value) is not types_of_kind[field.kind]:
        return False
    if field.kind == "float" and not isfinite(cast(float, value)):
        return False
    words = _texts(field, value)
    # What is not ASCII may be half of a surrogate pair.
    if not all(type(word) is str and word.isascii() for word in words):
        return False
    if field.choices and not all(word in field.choices for word in words):
        return False
    return all(_is_met(marker, value) for marker in field.info.metadata)


def _texts(field: SettingField, value: Any) -> Iterable[Any]:
    if field.kind in ("str", "choice"):
        return (value,)
    if field.kind == "mapping":
        return (*value, *value.values())
    return value if field.kind == "list" else ()


_BOUNDS: Mapping[str, Callable[[Any, Any], bool]] = {
    "ge": operator.ge,
    "gt": operator.gt,
    "le": operator.le,
    "lt": operator.lt,
    "min_length": lambda value, least: len(value) >= least,
}


def _is_met(marker: object, value: Any) -> bool:
    """Say whether something that a field was declared with is kept; not so for unknown things."""
    if isinstance(marker, FilePath | ModelPath | ProgramPath):
        return True
    if isinstance(marker, AfterValidator):
        check = cast(Callable[[Any], Any], marker.func)
        try:
            return bool(check(value) == value)
        except ValueError:
            return False
    names = tuple(getattr(marker, "__dataclass_fields__", ()))
    if len(names) != 1 or names[0] not in _BOUNDS:
        return False
    return _BOUNDS[names[0]](value, getattr(marker, names[0]))


@cache
def _adapter(path: str) -> TypeAdapter[Any]:
    field = setting_fields()[path]
    annotated: Any = Annotated[field.info.annotation, field.info]
    return TypeAdapter(annotated)


@cache
def sections() -> Mapping[str, type[Section]]:
    """The sections of `Settings` by dotted path, in order; one inside another follows it."""
    return types.MappingProxyType(dict(_sections(Settings, "")))


def _sections(model: type[Section], path: str) -> Iterator[tuple[str, type[Section]]]:
    for name, info in model.model_fields.items():
        if _is_section(info):
            inner = cast(type[Section], info.annotation)
            here = f"{path}.{name}" if path else name
            yield here, inner
            yield from _sections(inner, here)


def _is_section(info: FieldInfo) -> bool:
    return isinstance(info.annotation, type) and issubclass(info.annotation, Section)


def settings_of(values: Mapping[str, Any]) -> Settings:
    """Make settings of a tree of values that were validated one by one; the rest is default."""
    return cast(Settings, _construct(Settings, values))


def _construct(model: type[Section], values: Mapping[str, Any]) -> Section:
    inner = {name: info for name, info in model.model_fields.items() if _is_section(info)}
    made: dict[str, Any] = {
        name: _construct(cast(type[Section], inner[name].annotation), value)
        if name in inner
        else value
        for name, value in values.items()
    }
    return model.model_construct(**made)


def keys_of(section: str | None) -> tuple[str, ...]:
    """The keys that may stand in a section, or at the top of a profile for None."""
    model = sections()[section] if section else Settings
    return tuple(model.model_fields)


@cache
def setting_fields() -> Mapping[str, SettingField]:
    """All leaves by dotted path, in the order of the models."""
    return types.MappingProxyType(
        {
            field.path: field
            for section, model in sections().items()
            for field in (
                _describe(section, name, info)
                for name, info in model.model_fields.items()
                if not _is_section(info)
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
    flag = extra.get("flag") or f"--{section}-{name}".replace("_", "-").replace(".", "-")
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
        is_program=any(isinstance(marker, ProgramPath) for marker in markers),
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
