"""Where a package reads its environment, and what it makes of the text."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from .package import Package
from .rows import COMPUTED
from .static import dotted_name

_GETTERS = {
    "os.getenv": "",
    "os.environ.get": "",
    "os.environ.pop": "",
    "os.environ.setdefault": "",
    "environ.get": "",
    "getenv": "",
    "get_bool_env_var": "get-bool",
    "get_int_env_var": "int",
}
_TRACES = re.compile(r"os\.environ|environ[.\[]|getenv|env_var\(")
_ENVIRON = ("os.environ", "environ")
_BOOLEAN_INTS = ("maybe_convert_bool",)
# Words of a switch: a text that is compared with others is a choice, not a switch.
_SWITCH = {"0", "1", "true", "false", "True", "False", "yes", "no", "y", "n", "on", "off", "t", "f"}
_NUMBERS = {"int": "int", "float": "float", "maybe_convert_int": "int"}


@dataclass(frozen=True)
class Read:
    """One place that reads a variable. `kind` is a boolean parser's, or int, float, list, str."""

    name: str
    kind: str
    default: object = None


def reads(package: Package) -> Iterator[Read]:
    """Give every read of the package, its own tests apart."""
    for path in sorted(package.files):
        if "/test/" not in path and _TRACES.search(package.text(path)):
            yield from reads_in(package.tree(path))


def reads_in(tree: ast.AST) -> Iterator[Read]:
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        name, kind, default = _read(node)
        if name:
            yield Read(name, kind or _kind(node, parents), default)


def mentioned(package: Package, prefixes: tuple[str, ...]) -> set[str]:
    """Name everything that looks like a variable of the engine and is a literal somewhere.

    Some names reach os.environ by way of a constant or of a table: for a check that calls other
    names unknown, the literals are the safe side.
    """
    literal = re.compile(rf"""["']((?:{"|".join(prefixes)})[A-Z0-9_]*[A-Z0-9])["']""")
    return {name for path in package.files for name in literal.findall(package.text(path))}


def _read(node: ast.AST) -> tuple[str, str, object]:
    """The name, the kind if the getter decides it, and the default, of a node that reads."""
    match node:
        case ast.Call(func=function, args=[ast.Constant(value=str() as name), *rest]):
            getter = dotted_name(function)
            if getter not in _GETTERS:
                return "", "", None
            named = next((k.value for k in node.keywords if k.arg == "default"), None)
            default = rest[0] if rest else named
            return name, _GETTERS[getter], _default(default)
        case ast.Subscript(
            value=owner, slice=ast.Constant(value=str() as name), ctx=ast.Load()
        ) if dotted_name(owner) in _ENVIRON:
            return name, "", COMPUTED
        case _:
            return "", "", None


def _default(node: ast.expr | None) -> object:
    if node is None:
        return None
    return node.value if isinstance(node, ast.Constant) else COMPUTED


def _kind(read: ast.AST, parents: dict[ast.AST, ast.AST]) -> str:
    """Climb from a read to what is made of it."""
    climb, node = _Climb(), read
    while (parent := parents.get(node)) is not None:
        kind = climb.step(node, parent)
        if kind:
            return kind
        node = parent
    return climb.number or "str"


class _Climb:
    """What was done to a text so far: methods of str, then perhaps a number made of it."""

    def __init__(self) -> None:
        self.methods: list[str] = []
        self.number = ""

    def step(self, node: ast.AST, parent: ast.AST) -> str:
        """Give the kind once it is certain, "" while it is not."""
        match parent:
            case ast.Attribute(attr="split"):
                return "list"
            case ast.Attribute(attr="strip" | "lower" | "upper" as method):
                self.methods.append(method)
                return ""
            case ast.Call(func=function):
                # The call of the method that was just climbed through says nothing new.
                return "" if function is node else self._call(parent)
            case ast.Compare(left=left, ops=[op], comparators=[other]) if left is node:
                return _comparison(op, other, self.methods) or self.number or "str"
            case _:
                return self._branch(node, parent)

    def _call(self, call: ast.Call) -> str:
        name = dotted_name(call.func)
        if name in _BOOLEAN_INTS or (name == "bool" and self.number == "int"):
            return "bool-int"
        if name == "bool" and not self.number:
            return "any-text"
        if name in _NUMBERS:
            self.number = _NUMBERS[name]
            return ""
        return self.number or _of_call(call, self.methods)

    def _branch(self, node: ast.AST, parent: ast.AST) -> str:
        if self.number:
            return "" if isinstance(parent, ast.BoolOp | ast.IfExp) else self.number
        match parent:
            case ast.If(test=test) | ast.IfExp(test=test) if test is node:
                return "any-text"
            case ast.UnaryOp(op=ast.Not()):
                return "any-text"
            case _:
                return "str"


def _of_call(call: ast.Call, operations: list[str]) -> str:
    """`{"1": True, "0": False}.get(text)`: two words, anything else is as good as unset."""
    match call.func:
        case ast.Attribute(attr="get", value=ast.Dict(keys=keys, values=values)):
            by_value = {
                value.value: str(key.value)
                for key, value in zip(keys, values, strict=True)
                if isinstance(key, ast.Constant) and isinstance(value, ast.Constant)
            }
            if set(by_value) == {True, False}:
                return f"{_prefix(operations)}table ({by_value[True]}, {by_value[False]})"
        case _:
            pass
    return "str"


def _comparison(op: ast.cmpop, other: ast.expr, operations: list[str]) -> str:
    items = other.elts if isinstance(other, ast.Tuple | ast.List | ast.Set) else [other]
    words = [item.value for item in items if isinstance(item, ast.Constant)]
    texts = sorted(word for word in words if isinstance(word, str))
    if texts == [""] and isinstance(op, ast.NotEq):
        return "any-text"
    if len(texts) != len(items) or not set(texts) <= _SWITCH:
        return ""
    if not isinstance(op, ast.Eq | ast.In | ast.NotEq | ast.NotIn):
        return ""
    negative = "not " if isinstance(op, ast.NotEq | ast.NotIn) else ""
    return f"{_prefix(operations)}{negative}in ({', '.join(texts)})"


def _prefix(operations: list[str]) -> str:
    return "".join(f"{operation} " for operation in operations)
