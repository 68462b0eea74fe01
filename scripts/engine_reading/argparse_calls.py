"""Reads `parser.add_argument(...)` calls as data, `**kwargs[...]` of a table included."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Any, cast

from .rows import COMPUTED, Flag, type_name
from .static import NotStatic, Scope, dotted_name, evaluate, sequence

Kwargs = dict[str, Any]  # of one flag, or of many flags by their fields
Tables = dict[str, Kwargs]

_ACTIONS = {
    "BooleanOptionalAction": "boolean",
    "EnableDisableAction": "boolean",
    "DeprecatedStoreTrueAction": "store_true",
    "DeprecatedStoreConstAction": "store",
    "DeprecatedLogConfigFileAction": "store",
    "LoRAPathAction": "store",
    "LoRAParserAction": "store",
}


class CallReader:
    """Follows the statements of a function that fills a parser.

    `tables` are the local names that hold keyword arguments.
    """

    def __init__(self, scope: Scope, tables: Tables | None = None) -> None:
        self._scope = scope
        self._tables: Tables = tables if tables is not None else {}

    def flags(self, statements: Sequence[ast.stmt]) -> Iterator[Flag]:
        """Give the flags in their order, and keep the tables as the statements change them."""
        for statement in statements:
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self._assign(name, value)
                case ast.Assign(targets=[ast.Subscript() as target], value=value):
                    self._set(target, value)
                case ast.Delete(targets=[ast.Subscript() as target]):
                    self._kwargs(target.value).pop(self._key(target), None)
                case ast.If(body=body, orelse=orelse):
                    yield from self.flags(body)
                    yield from self.flags(orelse)
                case ast.Expr(value=ast.Call(func=ast.Attribute(attr="add_argument")) as call):
                    yield self._flag(call)
                case _:
                    pass

    def _assign(self, name: str, value: ast.expr) -> None:
        try:
            self._tables[name] = self._kwargs(value)
        except NotStatic:
            try:
                self._scope.values[name] = evaluate(value, self._scope)
            except NotStatic:
                self._scope.values.pop(name, None)

    def _set(self, target: ast.Subscript, value: ast.expr) -> None:
        try:
            self._kwargs(target.value).update(self._keyword(self._key(target), value))
        except NotStatic:
            return  # another kind of assignment

    def _key(self, target: ast.Subscript) -> str:
        return str(evaluate(target.slice, self._scope))

    def _kwargs(self, node: ast.expr) -> Kwargs:
        """Find the keyword arguments that an expression stands for."""
        match node:
            case ast.Name(id=name) if name in self._tables:
                return self._tables[name]
            case ast.Subscript(value=owner):
                found = self._kwargs(owner).get(self._key(node))
                if isinstance(found, dict):
                    return cast("Kwargs", found)
                raise NotStatic(ast.unparse(node))
            case ast.Call(func=ast.Name(id="get_kwargs"), args=[ast.Name(id=name)]):
                return self._tables[f"get_kwargs({name})"]
            case ast.Dict(keys=keys, values=values):
                kwargs: Kwargs = {}
                for key, value in zip(keys, values, strict=True):
                    more = self._kwargs(value) if key is None else self._entry(key, value)
                    kwargs |= more
                return kwargs
            case _:
                raise NotStatic(ast.unparse(node))

    def _entry(self, key: ast.expr, value: ast.expr) -> Kwargs:
        return self._keyword(str(evaluate(key, self._scope)), value)

    def _keyword(self, name: str, value: ast.expr) -> Kwargs:
        if name == "type":
            return {name: type_name(ast.unparse(value))}
        if name == "action" and not isinstance(value, ast.Constant):
            return {name: _ACTIONS.get(dotted_name(value).rpartition(".")[2], "store")}
        try:
            return {name: evaluate(value, self._scope)}
        except NotStatic:
            return {name: COMPUTED}

    def _flag(self, call: ast.Call) -> Flag:
        kwargs: Kwargs = {}
        for keyword in call.keywords:
            if keyword.arg is None:
                kwargs |= self._kwargs(keyword.value)
            else:
                kwargs |= self._keyword(keyword.arg, keyword.value)
        names = [str(evaluate(argument, self._scope)) for argument in call.args]
        return flag_of(names, kwargs)


def flag_of(names: Sequence[str], kwargs: Kwargs) -> Flag:
    """Build a flag from argparse's keyword arguments."""
    action = str(kwargs.get("action", "store"))
    own = next((name for name in names if name.startswith("--")), names[0])
    switch = action in ("store_true", "store_false", "boolean")
    return Flag(
        names=names,
        field=str(kwargs.get("dest") or own.lstrip("-").replace("-", "_")),
        type="bool" if switch else str(kwargs.get("type", "str")),
        action=action,
        nargs=kwargs.get("nargs"),
        choices=choices_of(kwargs.get("choices")),
        default=kwargs.get("default", False if action == "store_true" else None),
        required=bool(kwargs.get("required")),
        help=str(kwargs.get("help") or ""),
    )


def choices_of(value: object) -> object:
    """Give choices as a list, None where there are none or only the running engine knows them."""
    if value is None or value is COMPUTED:
        return None
    return [choice for choice in sequence(value) if choice is not None]
