"""Values that can be known without running the engine: literals, module constants, enum members."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from .package import Package

_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], object]] = {
    ast.Add: lambda left, right: left + right,
    ast.Sub: lambda left, right: left - right,
    ast.Mult: lambda left, right: left * right,
    ast.Pow: lambda left, right: left**right,
    ast.BitOr: lambda left, right: left | right,
}
_CONTAINERS: dict[str, Callable[..., object]] = {
    "list": list,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "sorted": sorted,
    "str": str,
    "dict": dict,
    "int": int,
    "float": float,
}


class NotStatic(Exception):
    """The value is decided when the engine runs."""


@dataclass(frozen=True)
class Imported:
    module: str
    name: str


Definition = ast.expr | ast.ClassDef | ast.FunctionDef | Imported


@dataclass(frozen=True)
class Scope:
    """Where a name is looked up: values of the moment, then the definitions of a module."""

    package: Package
    path: str
    definitions: Mapping[str, Definition]
    values: dict[str, object] = field(default_factory=dict[str, object])

    def find(self, name: str) -> tuple[Scope, Definition]:
        """Follow a name through imports to its definition, and the module that has it."""
        scope, wanted = self, name
        for _ in range(20):
            definition = scope.definitions.get(wanted)
            if definition is None:
                raise NotStatic(name)
            if not isinstance(definition, Imported):
                return scope, definition
            path = self.package.module_path(definition.module)
            if path is None:
                raise NotStatic(f"{definition.module}.{definition.name}")
            scope, wanted = module_scope(self.package, path), definition.name
        raise NotStatic(name)

    def inside(self, statements: Sequence[ast.stmt]) -> Scope:
        """Give the scope of a function body: its own imports first."""
        found = _definitions(statements, self.path)
        own = {name: each for name, each in found if isinstance(each, Imported)}
        return replace(self, definitions={**self.definitions, **own}, values=dict(self.values))


def module_scope(package: Package, path: str) -> Scope:
    return Scope(package, path, dict(_definitions(package.tree(path).body, path)))


def class_scope(scope: Scope, definition: ast.ClassDef) -> Scope:
    return replace(
        scope, definitions={**scope.definitions, **dict(_definitions(definition.body, scope.path))}
    )


def _definitions(statements: Sequence[ast.stmt], path: str) -> Iterator[tuple[str, Definition]]:
    """Name what statements define. A later definition wins, as it does when they run."""
    for statement in statements:
        match statement:
            case ast.ClassDef() | ast.FunctionDef():
                yield statement.name, statement
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                yield name, value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                yield name, value
            case ast.ImportFrom():
                yield from _imports(statement, path)
            case ast.If(body=body, orelse=orelse):
                # TYPE_CHECKING and its like: the engine runs the other branch.
                yield from _definitions(body, path)
                yield from _definitions(orelse, path)
            case ast.Try(body=body):
                yield from _definitions(body, path)
            case _:
                pass


def _imports(statement: ast.ImportFrom, path: str) -> Iterator[tuple[str, Definition]]:
    module = statement.module or ""
    if statement.level:
        parts = path.removesuffix("/__init__.py").removesuffix(".py").split("/")
        depth = statement.level - path.endswith("/__init__.py")
        parents = parts[: len(parts) - depth]
        module = ".".join([*parents, *([module] if module else [])])
    for alias in statement.names:
        yield alias.asname or alias.name, Imported(module, alias.name)


def dotted_name(node: ast.expr) -> str:
    """Spell `a.b.c` as text, "" for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        head = dotted_name(node.value)
        return f"{head}.{node.attr}" if head else ""
    return ""


def evaluate(node: ast.expr, scope: Scope) -> object:
    """Give the value of an expression, or raise NotStatic."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _apply(_OPERATORS[ast.Sub], 0, evaluate(operand, scope))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _apply(_OPERATORS[type(op)], evaluate(left, scope), evaluate(right, scope))
        case ast.Name(id=name):
            return _named(name, scope)
        case ast.Attribute(value=owner, attr=attribute):
            return _member(owner, attribute, scope)
        case ast.Call():
            return _called(node, scope)
        case _:
            return _display(node, scope)


def _display(node: ast.expr, scope: Scope) -> object:
    """The value of brackets, braces and f-strings. A Literal is the tuple of its words."""
    match node:
        case ast.List(elts=items):
            return _items(items, scope)
        case ast.Tuple(elts=items):
            return tuple(_items(items, scope))
        case ast.Set(elts=items):
            return set(_items(items, scope))
        case ast.Dict(keys=keys, values=values):
            pairs = zip(keys, values, strict=True)
            return {evaluate(k, scope): evaluate(v, scope) for k, v in pairs if k is not None}
        case ast.JoinedStr(values=parts):
            return "".join(_joined(part, scope) for part in parts)
        case ast.Subscript(value=ast.Name(id="Literal"), slice=inside):
            words = inside.elts if isinstance(inside, ast.Tuple) else [inside]
            return tuple(_flat(_items(words, scope)))
        case _:
            raise NotStatic(ast.unparse(node))


def _items(items: Sequence[ast.expr], scope: Scope) -> list[object]:
    found: list[object] = []
    for item in items:
        if isinstance(item, ast.Starred):
            found += sequence(evaluate(item.value, scope))
        else:
            found.append(evaluate(item, scope))
    return found


def _flat(words: Sequence[object]) -> Iterator[object]:
    """The words of a Literal that has other Literals among its words."""
    for word in words:
        if isinstance(word, tuple):
            yield from _flat(cast("tuple[object, ...]", word))
        else:
            yield word


def sequence(value: object) -> list[object]:
    """Give the elements of a list, a tuple or a set; a set is sorted, for it has no order."""
    if isinstance(value, list | tuple):
        return list(cast("Sequence[object]", value))
    if isinstance(value, set | frozenset):
        return sorted(cast("set[object]", value), key=str)
    raise NotStatic(repr(value))


def _apply(function: Callable[..., object], *values: object) -> object:
    try:
        return function(*values)
    except (TypeError, ValueError) as error:
        raise NotStatic(str(error)) from error


def _joined(part: ast.expr, scope: Scope) -> str:
    if isinstance(part, ast.Constant):
        return str(part.value)
    try:
        return str(evaluate(part.value, scope)) if isinstance(part, ast.FormattedValue) else ""
    except NotStatic:
        return "..."


def _named(name: str, scope: Scope) -> object:
    if name in scope.values:
        return scope.values[name]
    found, definition = scope.find(name)
    if isinstance(definition, ast.expr):
        return evaluate(definition, found)
    raise NotStatic(name)


def _member(owner: ast.expr, attribute: str, scope: Scope) -> object:
    """A class attribute, among them the value of an enum member."""
    name = dotted_name(owner)
    if not name or "." in name:
        raise NotStatic(f"{name}.{attribute}")
    found, definition = scope.find(name)
    if not isinstance(definition, ast.ClassDef):
        raise NotStatic(f"{name}.{attribute}")
    own = class_scope(found, definition)
    inner = own.definitions.get(attribute)
    if isinstance(inner, ast.expr):
        return evaluate(inner, own)
    raise NotStatic(f"{name}.{attribute}")


def _called(node: ast.Call, scope: Scope) -> object:
    name = dotted_name(node.func)
    arguments = [evaluate(argument, scope) for argument in node.args]
    if name in _CONTAINERS and not node.keywords:
        return _apply(_CONTAINERS[name], *arguments)
    if name == "os.path.expanduser":
        return arguments[0]  # "~" is a better default to show than this machine's home
    if name == "get_args":
        return arguments[0]  # a Literal reads as the tuple of its words
    if arguments or node.keywords or not name or "." in name:
        raise NotStatic(ast.unparse(node))
    found, definition = scope.find(name)
    if not isinstance(definition, ast.FunctionDef):
        raise NotStatic(name)
    last = definition.body[-1]
    if not isinstance(last, ast.Return) or last.value is None:
        raise NotStatic(name)
    return evaluate(last.value, found.inside(definition.body))
