"""The variables of an engine: those of its registry, and those it reads beside the registry."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from .environ_reads import Read, mentioned, reads, reads_in
from .package import Package, ReadingError
from .rows import COMPUTED, LEAVE_OUT, Row, default_of, replacement
from .static import NotStatic, Scope, dotted_name, evaluate, module_scope, sequence

SGLANG_REGISTRY = "sglang/srt/environ.py"
VLLM_REGISTRY = "vllm/envs.py"
_SGLANG_KINDS = {
    "Bool": "env-bool",
    "Int": "int",
    "Float": "float",
    "Str": "str",
    "Tuple": "list",
    "JSON": "json",
}
# The most telling first.
_NOT_BOOLEAN = ("int", "float", "list", "json", "choice", "str")


def sglang_environment(package: Package) -> list[Row]:
    """The fields of `Envs`, the old names they fall back to, and the deprecated ones."""
    scope = module_scope(package, SGLANG_REGISTRY)
    rows: list[Row] = []
    for node in _class(package, "Envs").body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call):
                rows += _sglang_rows(name, call, scope)
            case _:
                pass
    if not rows:
        message = f"{SGLANG_REGISTRY}: class Envs declares nothing"
        raise ReadingError(message)
    by_name = {str(row["name"]): row for row in rows}
    for row in _sglang_deprecated(scope):
        name = str(row["name"])
        by_name[name] = row | by_name.get(name, {}) | {"deprecated_by": row["deprecated_by"]}
    return list(by_name.values())


def _sglang_rows(name: str, call: ast.Call, scope: Scope) -> Iterator[Row]:
    kind = dotted_name(call.func).removeprefix("Env").removesuffix("WithAlias")
    if kind not in _SGLANG_KINDS:
        message = f"{SGLANG_REGISTRY}:{call.lineno}: {name} is of an unknown kind {kind!r}"
        raise ReadingError(message)
    row: Row = {"name": name, "kind": _SGLANG_KINDS[kind]}
    row |= default_of(_value(call.args[0], scope)) if call.args else {"computed": True}
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    if "secret" in given and _value(given["secret"], scope) is True:
        row["secret"] = True
    yield row
    if "deprecated_name" in given:
        old = str(_value(given["deprecated_name"], scope))
        yield {**row, "name": old, "deprecated_by": name}


def _sglang_deprecated(scope: Scope) -> Iterator[Row]:
    registry = scope.definitions.get("_DEPRECATED_ENVS")
    if not isinstance(registry, ast.Dict):
        message = f"{SGLANG_REGISTRY} has no _DEPRECATED_ENVS"
        raise ReadingError(message)
    for key, value in zip(registry.keys, registry.values, strict=True):
        name = str(key.value) if isinstance(key, ast.Constant) else ""
        given = (
            {k.arg: _value(k.value, scope) for k in value.keywords}
            if isinstance(value, ast.Call)
            else {}
        )
        instead = str(given.get("replacement") or replacement(str(given.get("note", "")), [name]))
        row: Row = {"name": name, "kind": "str", "default": None}
        yield row | {"deprecated_by": instead or LEAVE_OUT}


def vllm_environment(package: Package) -> list[Row]:
    """The entries of `environment_variables`, each with what its expression makes of a text."""
    scope = module_scope(package, VLLM_REGISTRY)
    registry = scope.definitions.get("environment_variables")
    if not isinstance(registry, ast.Dict):
        message = f"{VLLM_REGISTRY} has no environment_variables"
        raise ReadingError(message)
    rows: list[Row] = []
    for key, value in zip(registry.keys, registry.values, strict=True):
        if not isinstance(key, ast.Constant):
            message = f"{VLLM_REGISTRY}:{value.lineno}: a name that is no literal"
            raise ReadingError(message)
        rows.append(_vllm_row(str(key.value), value, scope))
    return rows


def _vllm_row(name: str, value: ast.expr, scope: Scope) -> Row:
    choices = _choices(value, scope)
    if choices is not None:
        return {"name": name, "kind": "choice", **choices}
    body: ast.AST = value
    if isinstance(value, ast.Name):
        found = scope.definitions.get(value.id)
        body = found if isinstance(found, ast.FunctionDef) else value
    own = [read for read in reads_in(body) if read.name == name]
    kinds = _kinds(own)
    if not kinds:
        return {"name": name, "kind": "str", "computed": True}
    return {"name": name, "kind": kinds[0], **default_of(_read_default(own, kinds[0]))}


def _choices(value: ast.expr, scope: Scope) -> Row | None:
    """`env_with_choices(name, default, choices)` and its list and set forms."""
    if not isinstance(value, ast.Call) or not dotted_name(value.func).endswith("_with_choices"):
        return None
    given: dict[str | None, ast.expr] = {k.arg: k.value for k in value.keywords}
    given |= dict(zip(("env_name", "default", "choices"), value.args, strict=False))
    row = default_of(_value(given["default"], scope))
    words = _value(given["choices"], scope)
    return row | ({} if words is COMPUTED else {"choices": sequence(words)})


def _read_default(own: list[Read], kind: str) -> object:
    """The default of the reads, as the kind would give it where that is plain."""
    texts = {read.default for read in own if not isinstance(read.default, type(COMPUTED))}
    if len(texts) != 1:
        return COMPUTED
    text = texts.pop()
    try:
        match kind:
            case "int" | "bool-int" if text is not None:
                number = int(str(text))
                return bool(number) if kind == "bool-int" else number
            case "float" if text is not None:
                return float(str(text))
            case _:
                return text
    except ValueError:
        return COMPUTED


def beside_registry(package: Package, prefixes: tuple[str, ...], declared: list[Row]) -> list[Row]:
    """The variables that the package reads, or at least names, and its registry does not know."""
    known = {str(row["name"]) for row in declared}
    by_name: dict[str, list[Read]] = {}
    for read in reads(package):
        by_name.setdefault(read.name, []).append(read)
    names = {name for name in mentioned(package, prefixes) if name not in known}
    names |= {
        name
        for name, found in by_name.items()
        if name not in known and any(read.kind == "get-bool" for read in found)
    }
    rows: list[Row] = []
    for name in sorted(names):
        kinds = _kinds(by_name.get(name, [])) or ["str"]
        row: Row = {"name": name, "kind": kinds[0]}
        rows.append(row | {"also": kinds[1:]} if kinds[1:] else row)
    _note_other_readers(declared, by_name)
    return rows


def _note_other_readers(declared: list[Row], by_name: dict[str, list[Read]]) -> None:
    """Tell when a declared switch is also read straight, by another parser."""
    for row in declared:
        if row["kind"] in _NOT_BOOLEAN:
            continue
        kinds = _kinds(by_name.get(str(row["name"]), []))
        quiet = (row["kind"], "any-text", *_NOT_BOOLEAN)
        other = [kind for kind in kinds if kind not in quiet]
        if other:
            row["also"] = other


def _kinds(found: Iterable[Read]) -> list[str]:
    """The distinct kinds: boolean ones if there are any, else the most telling one."""
    kinds = sorted({read.kind for read in found})
    boolean = [kind for kind in kinds if kind not in _NOT_BOOLEAN]
    if boolean:
        return sorted(boolean, key=lambda kind: (kind == "any-text", kind))
    return [kind for kind in _NOT_BOOLEAN if kind in kinds][:1]


def _value(node: ast.expr, scope: Scope) -> object:
    try:
        return evaluate(node, scope)
    except NotStatic:
        return COMPUTED


def _class(package: Package, name: str) -> ast.ClassDef:
    for node in package.tree(SGLANG_REGISTRY).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return node
    message = f"{SGLANG_REGISTRY} has no class {name}"
    raise ReadingError(message)
