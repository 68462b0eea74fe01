"""A file of the engine's own behind --config: whether it is read, and what stands in it.

KS202 no-effect-without for a file that is never opened; KS103 and KS104 for its keys, which only
somebody who looks at this host can see.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from kimi_serve.schemas.engine_facts import EngineTable
from kimi_serve.schemas.findings import Finding
from kimi_serve.schemas.provenance import DEFAULT, Origin

from ..engine_hints import hint_for_flag
from ..resolver.engine_view import ARGS, Given, origin_of
from ..resolver.situation import Situation
from ..sources.characters import printable
from ..sources.layers import Notes
from ..sources.yaml_nodes import Node, Scalar, Table, scalar_kind
from ..sources.yaml_tree import MAX_BYTES, parse_yaml
from .given import config_argument, flag_name
from .wording import at


def unread_file(situation: Situation) -> Iterator[Finding]:
    """Find a file that neither engine opens: both look for the word `--config` alone (KS202)."""
    read = config_argument(situation)
    for argument in situation.arguments:
        if flag_name(argument) == "--config" and argument.values and argument is not read:
            given = Given(argument.spelling, "", origin_of(situation.loaded, argument), ARGS)
            message = (
                f"{situation.engine_name} never opens this file and does not say so: it looks for "
                "--config as a word of its own"
            )
            help = 'write two items: "--config" and the file'
            yield at("KS202", given, message, help, severity="error")


def file_keys(situation: Situation) -> Iterator[Finding]:
    """Find keys of the file that the engine refuses (KS103) or drops (KS104)."""
    argument, table = config_argument(situation), situation.table
    if argument is None or table is None or situation.hardware is None:
        return
    name = printable(argument.values[0])
    tree = _read(argument.values[0])
    if not isinstance(tree, Table):
        return
    for key, value in tree.entries:
        place = key.span
        origin = Origin("profile", name, place.line, place.column, place.end_column)
        yield from _key_findings(situation, table, Given(key.text, "", origin, ARGS), value)


def _key_findings(
    situation: Situation, table: EngineTable, key: Given, value: Node
) -> Iterator[Finding]:
    flag = f"--{key.name}"
    if table.dotted:
        flag = flag.partition(".")[0]
    found = table.matches(flag)
    shown = printable(key.name)
    if len(found) != 1:
        hint = hint_for_flag(flag, table)
        text = f"; {hint.text}" if hint.text else ""
        message = f"{situation.engine_name} has no flag --{shown} for this key{text}"
        instead = f"write {hint.instead.lstrip('-')}" if hint.instead else "remove it"
        yield at("KS103", key, message, instead)
        return
    facts = table.by_spelling[found[0]]
    is_false = isinstance(value, Scalar) and scalar_kind(value) == "bool" and value.text[0] in "fF"
    # SGLang's parser of files does the same, but its switches are off by default.
    if situation.kind == "vllm" and is_false and facts.negatives and facts.default is not False:
        message = f"vLLM drops {shown}: false from its file, and the default stays"
        yield at("KS104", key, message, f"write {facts.negatives[0].lstrip('-')}: true")


def _read(path: str) -> Node | None:
    """Read the file if it is here; what is not is told of by KS403, what is no YAML by the engine.

    The engine's readers are laxer than ours: what ours would say of the text is not passed on.
    """
    try:
        if not os.path.isfile(path):
            return None
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError):
        return None
    return parse_yaml(data, Notes.on(DEFAULT))


RULES = (unread_file, file_keys)
