"""What vLLM makes of a config field's type hint when it adds a flag for the field."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from .argparse_calls import Kwargs
from .package import Package, ReadingError
from .rows import COMPUTED, empty
from .static import NotStatic, Scope, class_scope, dotted_name, evaluate, sequence

_HUMAN_INTS = {
    "max_num_batched_tokens",
    "max_num_scheduled_tokens",
    "kv_cache_memory_bytes",
    "safetensors_prefetch_block_size",
    "max_num_queued_tokens",
    "max_model_len",
}
_CONTAINERS = {"list": "list", "List": "list", "set": "set", "tuple": "tuple", "dict": "dict"}
_TRANSPARENT = ("Annotated", "SkipValidation", "ClassVar", "Final")


@dataclass(frozen=True)
class Hint:
    """One alternative of a type: its kind, and what the kind needs."""

    kind: str  # bool, int, float, str, none, literal, list, set, tuple, dict, dataclass, other
    words: tuple[object, ...] = ()
    element: str = "str"
    length: int | None = None  # of a tuple


def config_kwargs(package: Package, scope: Scope, name: str) -> dict[str, Kwargs]:
    """Give argparse's keyword arguments for each field of a config class, by field."""
    found, definition = scope.find(name)
    if not isinstance(definition, ast.ClassDef):
        message = f"{name} is not a class of vllm"
        raise ReadingError(message)
    kwargs: dict[str, Kwargs] = {}
    for base in definition.bases:
        if isinstance(base, ast.Name):
            try:
                kwargs |= config_kwargs(package, found, base.id)
            except NotStatic:
                continue  # a base class of another package has no fields for us
    own = class_scope(found, definition)
    for node in definition.body:
        match node:
            case ast.AnnAssign(target=ast.Name(id=field), annotation=annotation, value=value):
                shape = _shape(field, list(_hints(annotation, found)))
                kwargs[field] = {**shape, "default": _default(value, own)}
            case _:
                pass
    return kwargs


def _hints(node: ast.expr, scope: Scope, depth: int = 0) -> Iterator[Hint]:
    match node:
        case _ if depth > 20:
            yield Hint("other")
        case ast.Constant(value=None):
            yield Hint("none")
        case ast.Constant(value=str() as text):
            yield from _hints(ast.parse(text, mode="eval").body, scope, depth + 1)
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            yield from _hints(left, scope, depth + 1)
            yield from _hints(right, scope, depth + 1)
        case ast.Subscript(value=generic, slice=inside):
            yield from _generic(dotted_name(generic), inside, scope, depth)
        case ast.Name(id=name):
            yield from _named(name, scope, depth)
        case _:
            yield Hint("other")


def _generic(name: str, inside: ast.expr, scope: Scope, depth: int) -> Iterator[Hint]:
    parts = inside.elts if isinstance(inside, ast.Tuple) else [inside]
    if name in ("Optional", "Union"):
        for part in parts:
            yield from _hints(part, scope, depth + 1)
        if name == "Optional":
            yield Hint("none")
    elif name in _TRANSPARENT:
        yield from _hints(parts[0], scope, depth + 1)
    elif name == "Literal":
        words = evaluate(ast.Subscript(ast.Name("Literal"), inside), scope)
        yield Hint("literal", tuple(sequence(words)))
    elif name in _CONTAINERS:
        variadic = any(isinstance(p, ast.Constant) and p.value is ... for p in parts)
        length = len(parts) if name == "tuple" and not variadic else None
        inner = list(_hints(parts[0], scope, depth + 1))
        yield Hint(_CONTAINERS[name], *_element(inner), length)
    else:
        yield Hint("other")


def _element(inner: list[Hint]) -> tuple[tuple[object, ...], str]:
    """The words and the type of a collection's elements."""
    if len(inner) != 1:
        return (), "str"
    if inner[0].kind == "literal":
        return inner[0].words, "str"
    return (), inner[0].kind if inner[0].kind in ("int", "float") else "str"


def _named(name: str, scope: Scope, depth: int) -> Iterator[Hint]:
    if name in ("bool", "int", "float", "str"):
        yield Hint(name)
        return
    if name in _CONTAINERS:
        yield Hint(_CONTAINERS[name])
        return
    try:
        found, definition = scope.find(name)
    except NotStatic:
        yield Hint("other")
        return
    if isinstance(definition, ast.ClassDef):
        yield Hint(_class_kind(definition))
    elif isinstance(definition, ast.expr):
        yield from _hints(definition, found, depth + 1)
    else:
        yield Hint("other")


def _class_kind(definition: ast.ClassDef) -> str:
    decorators = [
        dotted_name(node.func if isinstance(node, ast.Call) else node)
        for node in definition.decorator_list
    ]
    if any(name.rpartition(".")[2] in ("config", "dataclass") for name in decorators):
        return "dataclass"
    bases = [
        dotted_name(base.value if isinstance(base, ast.Subscript) else base)
        for base in definition.bases
    ]
    return "dict" if "dict" in bases else "other"


def _shape(field: str, hints: list[Hint]) -> Kwargs:
    """Choose as vLLM does: the first kind of a fixed order that the type has."""
    by_kind = {hint.kind: hint for hint in reversed(hints)}
    if "dataclass" in by_kind:
        return {"type": "json"}
    if set(by_kind) == {"bool", "str", "none"}:
        return {"type": "str", "nargs": "?"}
    if "bool" in by_kind:
        return {"action": "boolean"}
    if "literal" in by_kind:
        return _literal(by_kind["literal"], open_ended="str" in by_kind)
    for kind in ("tuple", "list", "set"):
        if kind in by_kind:
            return _collection(by_kind[kind])
    if "int" in by_kind:
        return {"type": "human-int" if field in _HUMAN_INTS else "int"}
    if "float" in by_kind:
        return {"type": "float"}
    if "dict" in by_kind:
        return {"type": "json-or-str" if {"str", "other"} & set(by_kind) else "json"}
    return {"type": "str"}


def _literal(hint: Hint, *, open_ended: bool) -> Kwargs:
    kind = "int" if hint.words and isinstance(hint.words[0], int) else "str"
    return {"type": kind} if open_ended else {"type": kind, "choices": _sorted(hint.words)}


def _collection(hint: Hint) -> Kwargs:
    nargs = "+" if hint.length is None else hint.length
    kwargs: Kwargs = {"type": hint.element, "nargs": nargs}
    return kwargs | {"choices": _sorted(hint.words)} if hint.words else kwargs


def _default(node: ast.expr | None, scope: Scope) -> object:
    if node is None:
        return COMPUTED
    if isinstance(node, ast.Call) and dotted_name(node.func).rpartition(".")[2] in (
        "Field",
        "field",
    ):
        given: dict[str | None, ast.expr] = {k.arg: k.value for k in node.keywords}
        if node.args:
            given["default"] = node.args[0]
        factory = given.get("default_factory")
        if isinstance(factory, ast.Lambda):
            return _default(factory.body, scope)
        if factory is not None:
            return empty(dotted_name(factory))
        return _default(given.get("default"), scope)
    try:
        return evaluate(node, scope)
    except NotStatic:
        return COMPUTED


def _sorted(words: tuple[object, ...]) -> list[object]:
    """In the order of numbers if all are numbers, else of texts."""
    numbers = [word for word in words if isinstance(word, int)]
    return [*sorted(numbers)] if len(numbers) == len(words) else sorted(words, key=str)
