"""vLLM's flags of `serve`: engine arguments, then what the HTTP front and the command add."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from .argparse_calls import CallReader, Tables, flag_of
from .package import Package, ReadingError
from .rows import Flag, Row
from .static import Scope, module_scope
from .vllm_types import config_kwargs

ENGINE_ARGS = "vllm/engine/arg_utils.py"
FRONT_ARGS = "vllm/entrypoints/common/cli_args.py"


def vllm_flags(package: Package) -> list[Row]:
    engine = module_scope(package, ENGINE_ARGS)
    front = module_scope(package, FRONT_ARGS)
    flags = [
        *_called(package, engine, "EngineArgs.add_cli_args"),
        *_called(package, engine, "AsyncEngineArgs.add_cli_args"),
        *_called(package, front, "make_arg_parser"),
        *_front(package, front),
    ]
    return [flag.row(paired=True) for flag in flags if flag.names[0].startswith("-")]


def _called(package: Package, scope: Scope, name: str) -> Iterator[Flag]:
    function = _function(package, scope.path, name)
    inside = scope.inside(function.body)
    yield from CallReader(inside, _config_tables(package, scope, function)).flags(function.body)


def _config_tables(package: Package, scope: Scope, function: ast.FunctionDef) -> Tables:
    """The keyword arguments of each config class that the function asks for."""
    tables: Tables = {}
    for node in ast.walk(function):
        match node:
            case ast.Call(func=ast.Name(id="get_kwargs"), args=[ast.Name(id=name)]):
                tables[f"get_kwargs({name})"] = config_kwargs(package, scope, name)
            case _:
                pass
    return tables


def _front(package: Package, scope: Scope) -> Iterator[Flag]:
    """One flag for each field of FrontendArgs, as its two customisations leave them."""
    kwargs = config_kwargs(package, scope, "FrontendArgs")
    tables: Tables = {"frontend_kwargs": kwargs}
    for name in ("BaseFrontendArgs", "FrontendArgs"):
        function = _function(package, scope.path, f"{name}._customize_cli_kwargs")
        list(CallReader(scope.inside(function.body), tables).flags(function.body))
    for field, each in kwargs.items():
        yield flag_of([f"--{field.replace('_', '-')}"], each)


def _function(package: Package, path: str, name: str) -> ast.FunctionDef:
    owner, _, own = name.rpartition(".")
    bodies = [package.tree(path).body]
    if owner:
        bodies = [n.body for n in bodies[0] if isinstance(n, ast.ClassDef) and n.name == owner]
    for node in (node for body in bodies for node in body):
        if isinstance(node, ast.FunctionDef) and node.name == own:
            return node
    message = f"{path} has no {name}"
    raise ReadingError(message)
