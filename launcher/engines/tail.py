"""What a user wrote in the engine's own words, in the spelling that upgrades keep.

Aliases, abbreviations and old names become the long flag of today, `--flag=value` becomes two
words where the engine reads them alike. What its parser would refuse stays as it is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from kimi_serve.schemas.engine_facts import EngineTable
from kimi_serve.schemas.engine_launch import EngineFlag

from ..engine_command import EngineArgument, parse_arguments
from ..resolver.engine_view import ARGS, origin_of
from ..resolver.situation import Situation
from ..secrets.trees import redacted
from .writer import is_shown, shell_name

MODEL_FLAGS = ("--model", "--model-path")

# An old switch whose successor says exactly the same: `--new-flag` or `--new-flag=value`.
_SUCCESSOR = re.compile(r"(--[a-z0-9-]+)(?:=([\w-]+))?")


def own_arguments(situation: Situation, said: Sequence[EngineFlag]) -> Iterator[EngineFlag]:
    """Give engine.args in the user's order, without what `said` says as well."""
    if situation.table is None:
        yield from _unread(situation)
        return
    twice = {(flag.name, flag.values) for flag in said}
    for argument in situation.arguments:
        if argument is model_argument(situation):
            continue
        flag = _flag(situation, situation.table, argument)
        if (flag.name, flag.values) not in twice:
            yield flag


def model_argument(situation: Situation) -> EngineArgument | None:
    """Give the argument that names the model where no setting does, or where it says the same.

    SGLang takes no bare word for it and vLLM nothing but a bare word, in front of all flags.
    """
    found: EngineArgument | None = None
    for argument in situation.arguments:
        is_word = not argument.spelling and bool(argument.values)
        is_flag = argument.flag is not None and argument.flag.flag in MODEL_FLAGS
        if (is_word or is_flag) and not argument.problem and not argument.key:
            found = argument
    path = situation.settings.model.path
    if found is not None and path is not None and found.values != (path,):
        return None
    return found


def _flag(situation: Situation, table: EngineTable, argument: EngineArgument) -> EngineFlag:
    made = EngineFlag(
        name=argument.spelling,
        path=ARGS,
        origin=origin_of(situation.loaded, argument),
        reason="engine.args say it",
        values=argument.values,
        joined=argument.inline,
    )
    if argument.flag is not None and not argument.problem and argument.flag.flag != "--config":
        made = _canonical(situation, table, argument, made)
    made = replace(made, secret=_secret(made))
    return replace(made, written=_written(situation, argument, made)) if made.secret else made


def _written(situation: Situation, argument: EngineArgument, made: EngineFlag) -> tuple[str, ...]:
    """Give the values as they are written, "" for one that refers to no variable."""
    texts: list[str] = []
    for index in range(len(made.values)):
        behind = 0 if argument.inline or not argument.spelling else 1
        place = argument.position + behind + index
        text = situation.loaded.written.get((ARGS, place), "")
        if argument.inline:
            name, equals, text = text.partition("=")
            text = text if equals and "${" not in name else ""
        texts.append(text if is_shown(text, [made.name, text]) else "")
    return tuple(texts)


def _canonical(
    situation: Situation, table: EngineTable, argument: EngineArgument, made: EngineFlag
) -> EngineFlag:
    name, values = _today(situation, table, argument)
    reason = made.reason
    if name != argument.spelling + (f".{argument.key}" if argument.key else ""):
        reason = f"engine.args say it as {argument.spelling}"
    joined = argument.inline and not _reads_alike(name, argument, table)
    return replace(made, name=name, values=values, reason=reason, joined=joined)


def _today(
    situation: Situation, table: EngineTable, argument: EngineArgument
) -> tuple[str, tuple[str, ...]]:
    """Give the flag's name of today, and its values."""
    flag = argument.flag
    assert flag is not None
    full = argument.full or table.spelt(argument.spelling)
    if argument.key:
        # vLLM makes a value of each spelling: two of them must not become one.
        spellings = {
            table.spelt(other.spelling)
            for other in situation.arguments
            if other.flag is flag and other.key
        }
        return f"{flag.flag if len(spellings) == 1 else full}.{argument.key}", argument.values
    if argument.negated:
        return full, argument.values
    successor = _SUCCESSOR.fullmatch(flag.deprecated)
    target = table.by_spelling.get(successor[1]) if successor else None
    # Beside its successor the engine may refuse the old name: what it says is left as it is.
    is_beside = any(other.flag is target for other in situation.arguments)
    is_plain = flag.is_switch and not argument.values and not is_beside
    if successor and target is not None and is_plain:
        value = successor[2]
        if target.is_switch == (value is None):
            return target.flag, () if value is None else (value,)
    return flag.flag, argument.values


def _reads_alike(name: str, argument: EngineArgument, table: EngineTable) -> bool:
    """Tell whether the engine reads `--flag value` as it reads `--flag=value`."""
    if argument.key:
        return not argument.values[0].startswith("-")
    found = parse_arguments([name, *argument.values], table)
    return len(found) == 1 and not found[0].problem and found[0].values == argument.values


def _secret(flag: EngineFlag) -> str:
    words = list(flag.words)
    if not flag.values or redacted(words) == words:
        return ""
    return shell_name(flag.name.lstrip("-")).upper() if flag.name else "ENGINE_ARGUMENT"


def _unread(situation: Situation) -> Iterator[EngineFlag]:
    """Give the words as they are: no table says what they mean."""
    args = situation.settings.engine.args
    shown = redacted(list(args))
    for index, word in enumerate(args):
        secret = "" if shown[index] == word else f"ENGINE_ARGUMENT_{index + 1}"
        origin = situation.loaded.item(ARGS, index)
        reason = "engine.args say it; nobody checked this release"
        text = situation.loaded.written.get((ARGS, index), "") if secret else ""
        before = shown[index - 1] if index else ""
        written = text if is_shown(text, [before, text]) else ""
        yield EngineFlag("", ARGS, origin, reason, (word,), secret, written=(written,))
