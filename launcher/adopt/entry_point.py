"""Knows what starts an engine, and which words are a shell that is handed a text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath

from ..engine_command import find_command

# Entry points beside those that `find_command` knows: `serve` must follow.
_CLI_MODULES = {"sglang.cli.main": "sglang", "vllm.entrypoints.cli.main": "vllm"}
_SHELLS = ("sh", "bash", "dash", "ash", "zsh", "ksh")
# Long options of a shell that take the next word.
_WITH_VALUE = ("--rcfile", "--init-file")


@dataclass(frozen=True, slots=True)
class EntryPoint:
    """The words of a command from `start` to `end` start an engine, which takes `takes` words."""

    engine: str
    start: int
    end: int
    takes: int


def find_entry_point(texts: Sequence[str]) -> EntryPoint | None:
    """Find the words that start an engine."""
    command = find_command(texts)
    if command is not None:
        return EntryPoint(command.engine, command.start - 2, command.start, command.words)
    for index in range(len(texts) - 2):
        module, what, serve = texts[index : index + 3]
        if module == "-m" and what in _CLI_MODULES and serve == "serve":
            return EntryPoint(_CLI_MODULES[what], index, index + 3, 1)
    return None


def is_shell(text: str) -> bool:
    """Tell whether a word names a shell."""
    return PurePath(text).name in _SHELLS


def find_shell(texts: Sequence[str]) -> tuple[int, int] | None:
    """Give where a shell stands and where the text that its `-c` makes it run."""
    for index, text in enumerate(texts):
        script = _script_of(texts, index + 1) if is_shell(text) else None
        if script is not None:
            return index, script
    return None


def _script_of(texts: Sequence[str], index: int) -> int | None:
    """Pass over the options of a shell; gives its first other word where `-c` is one of them."""
    has_script = False
    while index < len(texts):
        option = texts[index]
        if option in ("-", "--"):
            index += 1
            break
        if option.startswith("--"):
            index += 2 if option in _WITH_VALUE else 1
        elif len(option) > 1 and option[0] in "-+":
            has_script = has_script or (option[0] == "-" and "c" in option)
            index += 1 + sum(option.count(letter) for letter in "oO")
        else:
            break
    return index if has_script and index < len(texts) else None
