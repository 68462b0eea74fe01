"""Finds an engine's container in YAML: compose files and services, Kubernetes objects, lists."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, cast

import yaml

from kimi_serve.schemas.errors import ConfigError

from ..sources.yaml_loader import LOADER
from .container import Container, variable
from .shell import read_script
from .words import EnvFile, Told, Variable, Word, literal, reference

_FIRST_LINE = re.compile(r"---|[\[{]|-\s|[\"']?[A-Za-z_][\w./-]*[\"']?\s*:(\s|$)|<<:")
_COMPOSE = re.compile(
    r"\$\$(?P<brace>\{)?|\$\{(?P<braced>[A-Za-z_]\w*)(?::?[-=](?P<default>[^{}]*))?\}|\$(?P<plain>[A-Za-z_]\w*)"
)
_KUBERNETES = re.compile(r"\$\$\(|\$\((?P<name>[A-Za-z_]\w*)\)")
_MOST_NODES = 20_000
_DEPTH = 40
_KEYS = frozenset(("command", "args", "entrypoint"))
# Keys of a container that are looked at; the others are named in a note.
_READ = _KEYS | {"image", "env", "environment", "env_file", "ports", "ipc", "shm_size", "name"}
_A_VALUE = "the value of a variable is a text"
_FALSE = ("false", "no", "off")
# Where compose names GPUs.
_WITH_GPUS = ("deploy", "gpus")
Table = dict[str, tuple[yaml.Node, yaml.Node]]


def looks_like_yaml(text: str) -> bool:
    """Say whether a text begins as YAML does, and as no shell command would."""
    for line in text.splitlines():
        stripped = line.strip().removeprefix("\ufeff")
        if stripped and not stripped.startswith("#"):
            return _FIRST_LINE.match(stripped) is not None
    return False


def read_manifest(text: str, told: Told) -> list[Container]:
    """Give every container of a text that has a command."""
    try:
        roots = [root for root in cast(Any, yaml).compose_all(text, Loader=LOADER) if root]
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark else ""
        raise ConfigError(
            f"the text begins as YAML and cannot be read as such{where}",
            hint="give a compose service, a Kubernetes container, a list of words, or a command",
        ) from None
    return [found for root in roots for found in _Walk(told).containers(root)]


class _Walk:
    """Looks for containers; counts nodes, because aliases may multiply them."""

    def __init__(self, told: Told) -> None:
        self._told = told
        self._left = _MOST_NODES

    def containers(self, node: yaml.Node, depth: int = 0) -> Iterator[Container]:
        self._left -= 1
        if self._left < 0 or depth > _DEPTH:
            return
        if isinstance(node, yaml.SequenceNode):
            items = cast("list[yaml.Node]", node.value)
            if items and all(isinstance(item, yaml.ScalarNode) for item in items):
                yield Container(command=tuple(_word(item, _as_is) for item in items))
                return
            for item in items:
                yield from self.containers(item, depth + 1)
        elif isinstance(node, yaml.MappingNode):
            table = _table(node)
            is_container = not _KEYS.isdisjoint(table) or (
                "image" in table and isinstance(table["image"][1], yaml.ScalarNode)
            )
            if is_container:
                yield self._container(table)
                return
            for _, value in table.values():
                yield from self.containers(value, depth + 1)

    def _container(self, table: Table) -> Container:
        is_pod = "args" in table or "env" in table or "volumeMounts" in table
        expand = _kubernetes if is_pod else _compose
        container = Container(is_pod=is_pod)
        if "image" in table:
            container.image = _word(table["image"][1], expand, "an image is a text")
        entry, command = ("command", "args") if is_pod else ("entrypoint", "command")
        container.entrypoint = self._line(table, entry, expand) or _no_entrypoint(table, is_pod)
        container.command = self._line(table, command, expand)
        container.variables = [
            *_variables(table, "environment", expand),
            *_variables(table, "env", expand),
        ]
        container.env_files = [_env_file(item, expand) for item in _items(table, "env_file")]
        container.published = [_port(item, expand) for item in _items(table, "ports")]
        container.ipc = _text(table, "ipc")
        container.shared_memory = _text(table, "shm_size")
        container.network = _text(table, "network_mode")
        container.gpus = _devices(table)
        for name, (key, _) in table.items():
            if name not in _READ and not (name in _WITH_GPUS and container.gpus):
                self._told.note(f"left out ({_place(key)}): {name}: it is about the container")
        return container

    def _line(self, table: Table, key: str, expand: Any) -> tuple[Word, ...]:
        """Read a command: a list of words, or one text that is split as a shell would."""
        if key not in table:
            return ()
        node = table[key][1]
        if isinstance(node, yaml.SequenceNode):
            return tuple(_word(item, expand) for item in _items(table, key))
        word = _word(node, expand)
        if not word.text:
            return ()
        # No shell runs it: what would be an operator is a word.
        text = word.text.replace("\\\n", " ").replace("\n", " ")
        words: list[Word] = []
        for command in read_script(text, self._told):
            words += [*command.words, *command.redirections]
            words += [Word(command.operator)] if command.operator else []
        return tuple(Word(inner.text, word.place, inner.unsure) for inner in words)


def _table(node: yaml.MappingNode) -> Table:
    """Give the entries by their keys, those of `<<` below."""
    own: Table = {}
    merged: Table = {}
    for key, value in cast("list[tuple[yaml.Node, yaml.Node]]", node.value):
        if not isinstance(key, yaml.ScalarNode):
            continue
        if key.tag == "tag:yaml.org,2002:merge":
            parents = value.value if isinstance(value, yaml.SequenceNode) else [value]
            for parent in cast("list[yaml.Node]", parents):
                if isinstance(parent, yaml.MappingNode) and parent is not node:
                    merged = _table(parent) | merged
        else:
            own[str(key.value)] = (key, value)
    return merged | own


def _no_entrypoint(table: Table, is_pod: bool) -> tuple[Word, ...] | None:
    """Tell an entry point that compose is told to leave out from one that is not mentioned."""
    is_emptied = not is_pod and "entrypoint" in table and not _is_null(table["entrypoint"][1])
    return () if is_emptied else None


def _items(table: Table, key: str) -> list[yaml.Node]:
    node = table[key][1] if key in table else None
    if isinstance(node, yaml.SequenceNode):
        return cast("list[yaml.Node]", node.value)
    return [node] if isinstance(node, yaml.ScalarNode) and not _is_null(node) else []


def _variables(table: Table, key: str, expand: Any) -> Iterator[Variable]:
    """Read a mapping of names, a list of NAME=value, or a list of {name, value}."""
    node = table[key][1] if key in table else None
    if isinstance(node, yaml.MappingNode):
        for name, (_, value) in _table(node).items():
            word = None if _is_null(value) else _word(value, expand, _A_VALUE)
            yield Variable(name, word, _place(value))
    elif isinstance(node, yaml.SequenceNode):
        for item in cast("list[yaml.Node]", node.value):
            if isinstance(item, yaml.MappingNode):
                yield from _named(_table(item), expand)
            else:
                yield variable(_word(item, expand, "a variable is NAME=value"))


def _named(table: Table, expand: Any) -> Iterator[Variable]:
    """Read {name, value}; a value that comes from a Secret or a field is passed on by its name."""
    if "name" in table:
        (key, name) = table["name"]
        value = table.get("value")
        word = _word(value[1], expand, _A_VALUE) if value and not _is_null(value[1]) else None
        yield Variable(str(name.value), word, _place(key))


def _devices(table: Table) -> Word | None:
    """Give the GPUs of `gpus` and of `deploy.resources.reservations.devices`, as `--gpus` does."""
    node = table["gpus"][1] if "gpus" in table else None
    if node is None and "deploy" in table:
        node = table["deploy"][1]
        for key in ("resources", "reservations", "devices"):
            inner = _table(node) if isinstance(node, yaml.MappingNode) else {}
            node = inner[key][1] if key in inner else None
    if not isinstance(node, yaml.SequenceNode):
        return None
    ids: list[yaml.Node] = []
    for device in cast("list[yaml.Node]", node.value):
        if isinstance(device, yaml.MappingNode):
            ids += _items(_table(device), "device_ids")
    texts = [str(each.value) for each in ids if isinstance(each, yaml.ScalarNode)]
    return Word(f"device={','.join(texts)}", _place(ids[0])) if texts else None


def _port(node: yaml.Node, expand: Any) -> Word:
    what = _entry(node, ("containerPort", "target"))
    return _word(what, expand, "a port is a text, or a mapping with `target`")


def _env_file(node: yaml.Node, expand: Any) -> EnvFile:
    """Read the name of a file, or {path, required}."""
    what = _entry(node, ("path",))
    name = _word(what, expand, "a file of env_file is a text, or a mapping with `path`")
    required = _text(_table(node), "required") if isinstance(node, yaml.MappingNode) else ""
    return EnvFile(name, is_optional=required.lower() in _FALSE)


def _entry(node: yaml.Node, keys: Sequence[str]) -> yaml.Node:
    """Give the entry of a mapping that says what its short form would; else the node itself."""
    table = _table(node) if isinstance(node, yaml.MappingNode) else {}
    return next((table[key][1] for key in keys if key in table), node)


def _text(table: Table, key: str) -> str:
    node = table[key][1] if key in table else None
    return str(node.value) if isinstance(node, yaml.ScalarNode) else ""


def _word(node: yaml.Node, expand: Any, allowed: str = "a word of a command is a text") -> Word:
    if not isinstance(node, yaml.ScalarNode):
        raise ConfigError(
            f"{_place(node)}: {allowed}, and this is a list or a mapping",
            hint="write it so, or leave it out",
        )
    text, unsure = expand("" if _is_null(node) else str(node.value))
    return Word(text, _place(node), unsure)


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null"


def _place(node: yaml.Node) -> str:
    return f"line {node.start_mark.line + 1}"


def _as_is(text: str) -> tuple[str, str]:
    return literal(text), ""


def _compose(text: str) -> tuple[str, str]:
    """Read `${NAME}`, `${NAME:-default}` and `$$` as compose does."""
    unsure = ""

    def instead(match: re.Match[str]) -> str:
        nonlocal unsure
        if match["default"] is not None:
            unsure = f"the default of {match['braced']}, which is not looked up"
            return match["default"]
        name = match["braced"] or match["plain"]
        if not name:
            return "$${" if match["brace"] else "$"
        return reference(name)

    return _COMPOSE.sub(instead, text), unsure


def _kubernetes(text: str) -> tuple[str, str]:
    """Read `$(NAME)` as Kubernetes does; `${NAME}` is left to a shell inside, if there is one."""

    pieces: list[str] = []
    last = 0
    for match in _KUBERNETES.finditer(text):
        pieces.append(literal(text[last : match.start()]))
        pieces.append(reference(match["name"]) if match["name"] else "$(")
        last = match.end()
    return "".join([*pieces, literal(text[last:])]), ""
