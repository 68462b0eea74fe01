"""SGLang's flags: annotated fields of `srt/arg_groups/fields/`, and `ServerArgs.add_cli_args`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from .argparse_calls import CallReader, choices_of
from .package import Package, ReadingError
from .rows import COMPUTED, LEAVE_OUT, Flag, Row, empty, replacement, type_name
from .static import NotStatic, Scope, dotted_name, evaluate, module_scope, sequence

FIELDS = "sglang/srt/arg_groups/fields/"
SERVER_ARGS = "sglang/srt/server_args.py"
_SCALARS = ("int", "float", "str")


def sglang_flags(package: Package) -> list[Row]:
    declared = [flag.row() for flag in _declared(package)]
    if not declared:
        message = f"no annotated fields found under {FIELDS}"
        raise ReadingError(message)
    return [*declared, *_registered(package)]


def _declared(package: Package) -> Iterator[Flag]:
    for path in sorted(path for path in package.files if path.startswith(FIELDS)):
        scope = module_scope(package, path)
        for group in package.tree(path).body:
            if isinstance(group, ast.ClassDef):
                yield from _fields(group, scope)


def _fields(group: ast.ClassDef, scope: Scope) -> Iterator[Flag]:
    for node in group.body:
        match node:
            case ast.AnnAssign(
                target=ast.Name(id=name),
                annotation=ast.Subscript(
                    value=ast.Name(id="A"), slice=ast.Tuple(elts=[kind, note, *_])
                ),
            ):
                flag = _field(name, kind, _note(note), node.value, scope)
                if flag is not None:
                    yield flag
            case _:
                pass


def _note(note: ast.expr) -> dict[str, ast.expr]:
    """The keywords of `Arg(...)`; a bare string is short for its help."""
    if isinstance(note, ast.Call):
        return {keyword.arg: keyword.value for keyword in note.keywords if keyword.arg}
    return {"help": note}


def _field(
    name: str, kind: ast.expr, note: dict[str, ast.expr], default: ast.expr | None, scope: Scope
) -> Flag | None:
    def value(key: str) -> object:
        return _value(note[key], scope) if key in note else None

    if value("no_cli"):
        return None
    names = [str(value("cli_name") or f"--{name.replace('_', '-')}"), *_texts(value("aliases"))]
    inner = _without_optional(kind)
    shape = _action(note) if "action" in note else _shape(inner, note)
    choices = choices_of(value("choices"))
    if choices is None and _generic(inner) == "Literal":
        choices = choices_of(_value(inner, scope))
    return Flag(
        names=names,
        field=name,
        type=shape["type"],
        action=shape["action"],
        nargs=value("nargs") if "nargs" in note else shape.get("nargs"),
        choices=choices,
        default=_default(default, scope),
        required=default is None,
        help=str(value("help") or ""),
    )


def _shape(inner: ast.expr, note: dict[str, ast.expr]) -> dict[str, str]:
    """How argparse is told to read a field of this type."""
    parser = ast.unparse(note["type_parser"]) if "type_parser" in note else None
    generic = _generic(inner)
    if isinstance(inner, ast.Name) and inner.id == "bool":
        return {"type": "bool", "action": "store_true"}
    if generic in ("List", "list") and parser is None:
        element = dotted_name(inner.slice) if isinstance(inner, ast.Subscript) else "str"
        return {"type": _scalar(element), "action": "store", "nargs": "+"}
    if generic == "Literal" and parser is None:
        first = inner.slice if isinstance(inner, ast.Subscript) else inner
        first = first.elts[0] if isinstance(first, ast.Tuple) else first
        return {"type": "int" if isinstance(_constant(first), int) else "str", "action": "store"}
    return {"type": type_name(parser) if parser else _scalar(dotted_name(inner)), "action": "store"}


def _action(note: dict[str, ast.expr]) -> dict[str, str]:
    if dotted_name(note["action"]).endswith("BooleanOptionalAction"):
        return {"type": "bool", "action": "boolean"}
    shape = {"type": "str", "action": "store"}
    return shape | {"nargs": _nargs(note["action_kwargs"])} if "action_kwargs" in note else shape


def _nargs(node: ast.expr) -> str:
    """The `nargs` of a mapping, whose other entries are no literals."""
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if _constant(key) == "nargs":
                return str(_constant(value))
    message = f"unknown action keywords {ast.unparse(node)}"
    raise ReadingError(message)


def _constant(node: ast.expr | None) -> object:
    return node.value if isinstance(node, ast.Constant) else None


def _scalar(name: str) -> str:
    return name if name in _SCALARS else "str"


def _generic(node: ast.expr) -> str:
    return dotted_name(node.value) if isinstance(node, ast.Subscript) else ""


def _without_optional(kind: ast.expr) -> ast.expr:
    return kind.slice if isinstance(kind, ast.Subscript) and _generic(kind) == "Optional" else kind


def _texts(value: object) -> list[str]:
    return [str(item) for item in sequence(value or [])]


def _value(node: ast.expr, scope: Scope) -> object:
    try:
        return evaluate(node, scope)
    except NotStatic:
        return COMPUTED


def _default(node: ast.expr | None, scope: Scope) -> object:
    if node is None:
        return None
    if isinstance(node, ast.Call):
        factory = next((k.value for k in node.keywords if k.arg == "default_factory"), None)
        return empty(dotted_name(factory)) if factory else COMPUTED
    return _value(node, scope)


def _registered(package: Package) -> Iterator[Row]:
    """The flags that are added by hand: choices of the moment, `--config`, deprecated spellings."""
    scope = module_scope(package, SERVER_ARGS)
    body = _method(package, "ServerArgs", "add_cli_args").body
    reader = CallReader(scope.inside(body))
    calls = [
        statement.value
        for statement in body
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
    ]
    notes = {
        str(_constant(call.args[0])): {k.arg: k.value for k in call.keywords}
        for call in calls
        if call.args
    }
    defaults = dict(_defaults(package))
    for called in reader.flags(body):
        known = called.default is COMPUTED and called.field in defaults
        flag = replace(called, default=defaults[called.field]) if known else called
        instead = notes[flag.names[0]].get("new_flag")
        if instead is not None:
            yield flag.row(str(_constant(instead)) or LEAVE_OUT)
        elif flag.help.lower().startswith("(deprecated"):
            yield flag.row(replacement(flag.help, flag.names))
        else:
            yield flag.row("")


def _defaults(package: Package) -> Iterator[tuple[str, object]]:
    """The default of every field, for the flags that look theirs up."""
    for path in sorted(path for path in package.files if path.startswith(FIELDS)):
        scope = module_scope(package, path)
        for group in package.tree(path).body:
            for node in group.body if isinstance(group, ast.ClassDef) else ():
                if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                    yield node.target.id, _default(node.value, scope)


def _method(package: Package, owner: str, name: str) -> ast.FunctionDef:
    for node in package.tree(SERVER_ARGS).body:
        if isinstance(node, ast.ClassDef) and node.name == owner:
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef) and inner.name == name:
                    return inner
    message = f"{SERVER_ARGS} has no {owner}.{name}"
    raise ReadingError(message)
