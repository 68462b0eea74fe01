"""Reads an engine's command line as the engine's own parser would, by its table.

Pure: a list of words and a table in, arguments with their positions out. What the engine would
refuse is kept, with the reason.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any, Literal, cast

from kimi_serve.schemas.engine_facts import EngineTable, FlagFacts
from kimi_serve.schemas.vocabulary import ENGINES

Problem = Literal["", "unknown", "ambiguous", "no value", "unwanted value", "loose word"]

_NEGATIVE_NUMBER = re.compile(r"-\d+|-\d*\.\d+")
_LEVELS = ("0", "1", "2", "3")
_MODULES = {
    "sglang.launch_server": "sglang",
    "vllm.entrypoints.openai.api_server": "vllm",
    "vllm.entrypoints.launchers.api_server.entry": "vllm",
}


@dataclass(frozen=True, slots=True)
class EngineArgument:
    """One flag with its values, or one word that no flag takes.

    `position` is the index of its first word in the list, `end` the index behind its last.
    `spelling` is the flag as it is written, without a value behind `=` and without the `key` of
    vLLM's `--config.key`; it is "" for a word, and "--" for the mark behind which all are words.
    `full` is the spelling that an abbreviation is completed to, `candidates` are what an
    ambiguous one could mean. `inline` tells that the value is in the same word as the flag.
    """

    position: int
    end: int
    spelling: str = ""
    key: str = ""
    flag: FlagFacts | None = None
    values: tuple[str, ...] = ()
    inline: bool = False
    negated: bool = False
    problem: Problem = ""
    candidates: tuple[str, ...] = ()
    full: str = ""

    @property
    def abbreviated(self) -> bool:
        """Tell whether the flag is known only because the engine completes its name."""
        return bool(self.full)


@dataclass(frozen=True, slots=True)
class EngineCommand:
    """A whole command: the engine, and where its words behind the entry point start."""

    engine: str
    start: int
    words: int  # how many loose words the entry point takes: the model


def find_command(argv: Sequence[str]) -> EngineCommand | None:
    """Find the engine's entry point in a command, behind `env`, `numactl` and their like."""
    for index, word in enumerate(argv):
        after = argv[index + 1] if index + 1 < len(argv) else ""
        if PurePath(word).name in ENGINES and after == "serve":
            return EngineCommand(PurePath(word).name, index + 2, words=1)
        if word == "-m" and after in _MODULES:
            engine = _MODULES[after]
            return EngineCommand(engine, index + 2, words=int(engine == "vllm"))
    return None


def parse_arguments(
    args: Sequence[str], table: EngineTable, *, words: int = 0
) -> tuple[EngineArgument, ...]:
    """Read the arguments of an engine. `words` is how many loose words it takes."""
    reader = _Reader(args, table)
    found: list[EngineArgument] = []
    while reader.index < len(args):
        argument = reader.next()
        if argument.problem == "loose word" and words:
            argument, words = replace(argument, problem=""), words - 1
        found.append(argument)
    return tuple(found)


def last_keyed(arguments: Sequence[EngineArgument]) -> tuple[EngineArgument, ...]:
    """Give the `--flag.key` arguments of one flag that count.

    vLLM makes one value of each spelling, in the order in which they first come: the last counts.
    """
    groups: dict[str, list[EngineArgument]] = {}
    for argument in arguments:
        if argument.key and argument.values:
            groups.setdefault(argument.spelling.replace("_", "-"), []).append(argument)
    return tuple(list(groups.values())[-1]) if groups else ()


def keyed_text(arguments: Sequence[EngineArgument]) -> str:
    """Put `--flag.key` arguments together and write them as JSON, as vLLM does."""
    whole: dict[str, Any] = {}
    try:
        for argument in arguments:
            key, text = argument.key, argument.values[0]
            value = text.split(",") if key.endswith("+") else _json_or_text(text)
            for name in reversed(key.removesuffix("+").split(".")):
                value = {name: value}
            _merge(whole, cast("dict[str, Any]", value))
        return json.dumps(whole)
    except RecursionError:
        return ""


def _merge(whole: dict[str, Any], update: dict[str, Any]) -> None:
    for name, value in update.items():
        before = whole.get(name)
        if isinstance(before, dict) and isinstance(value, dict):
            _merge(cast("dict[str, Any]", before), cast("dict[str, Any]", value))
        elif isinstance(before, list) and isinstance(value, list):
            whole[name] = before + value
        else:
            whole[name] = value


def _json_or_text(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text


class _Reader:
    """Walks over the words, as argparse does."""

    def __init__(self, args: Sequence[str], table: EngineTable) -> None:
        self._args = args
        self._table = table
        self._only_words = False
        self.index = 0

    def next(self) -> EngineArgument:
        start = self.index
        word = self._args[start]
        self.index += 1
        if word == "--" and not self._only_words:
            self._only_words = True
            return EngineArgument(start, self.index, spelling=word)
        if self._only_words or not _is_option(word, self._table):
            return EngineArgument(start, self.index, values=(word,), problem="loose word")
        named, inline = _name(word, self._table)
        return replace(self._with_values(named, inline), position=start, end=self.index)

    def _with_values(self, named: EngineArgument, inline: str | None) -> EngineArgument:
        flag = named.flag
        if flag is None:
            return replace(named, values=self._unknown_values(inline))
        if named.key:
            return self._one_value(named, inline, lambda _: True)
        if inline is not None:
            problem: Problem = "unwanted value" if flag.is_switch else ""
            return replace(named, values=(inline,), inline=True, problem=problem)
        if flag.most == 1 and flag.least == 1:
            return self._one_value(named, None, self._is_value)
        values = self._take(flag.most)
        return replace(named, values=values, problem=_shortage(flag, values))

    def _one_value(
        self, named: EngineArgument, inline: str | None, fits: Callable[[str], bool]
    ) -> EngineArgument:
        if inline is not None:
            return replace(named, values=(inline,), inline=True)
        if self.index < len(self._args) and fits(self._args[self.index]):
            self.index += 1
            return replace(named, values=(self._args[self.index - 1],))
        return replace(named, problem="no value")

    def _unknown_values(self, inline: str | None) -> tuple[str, ...]:
        return (inline,) if inline is not None else self._take(None)

    def _take(self, most: int | None) -> tuple[str, ...]:
        start = self.index
        while (
            self.index < len(self._args)
            and (most is None or self.index - start < most)
            and self._is_value(self._args[self.index])
        ):
            self.index += 1
        return tuple(self._args[start : self.index])

    def _is_value(self, word: str) -> bool:
        return word != "--" and not _is_option(word, self._table)


def _shortage(flag: FlagFacts, values: tuple[str, ...]) -> Problem:
    return "no value" if len(values) < flag.least else ""


def _is_option(word: str, table: EngineTable) -> bool:
    """Tell whether argparse takes a word for a flag rather than for a value."""
    if len(word) < 2 or word[0] != "-" or word == "--":
        return False
    name = word.partition("=")[0]
    if table.matches(name) or (table.dotted and "." in name and _head(name, table)):
        return True
    return _NEGATIVE_NUMBER.fullmatch(word) is None and " " not in word


def _name(word: str, table: EngineTable) -> tuple[EngineArgument, str | None]:
    """Read the flag of a word, and the value that the same word holds."""
    name, equals, rest = word.partition("=")
    inline = rest if equals else None
    key = ""
    if table.dotted and "." in name and _head(name, table):
        name, _, key = name.partition(".")
    matches = table.matches(name)
    if not matches and not name.startswith("--"):
        attached = _short(word, table)
        if attached is not None:
            return attached
    argument = EngineArgument(0, 0, name, key)
    if len(matches) != 1:
        problem: Problem = "ambiguous" if matches else "unknown"
        return replace(argument, problem=problem, candidates=matches), inline
    (full,) = matches
    flag = table.by_spelling[full]
    completed = "" if full == table.spelt(name) else full
    return replace(argument, flag=flag, negated=full in flag.negatives, full=completed), inline


def _head(name: str, table: EngineTable) -> tuple[str, ...]:
    return table.matches(name.partition(".")[0])


def _short(word: str, table: EngineTable) -> tuple[EngineArgument, str | None] | None:
    """A short flag with its value attached, as in -q8, and vLLM's -O3."""
    level = word[2:].removeprefix("=")
    if table.engine == "vllm" and word.startswith("-O") and level in _LEVELS:
        flag = table.by_spelling.get("--optimization-level")
        return EngineArgument(0, 0, "-O", flag=flag), level
    if table.engine == "vllm" and word == "-O":
        return EngineArgument(0, 0, "-O", flag=table.by_spelling.get("--optimization-level")), None
    flag = table.by_spelling.get(word[:2])
    if flag is not None and not flag.is_switch:
        return EngineArgument(0, 0, word[:2], flag=flag), word[2:]
    return None
