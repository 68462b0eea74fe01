"""Finds the engine's command in what was given, and what stands around it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

from kimi_serve.schemas.errors import ConfigError

from ..secrets.names import is_secret_name
from ..secrets.shapes import secrets_in
from ..sources.characters import find_odd
from .container import RUNNING, Container, read_run
from .entry_point import EntryPoint, find_entry_point, find_shell
from .environment import read_env_files
from .manifest import looks_like_yaml, read_manifest
from .shell import Command, read_script, sets_variables
from .unit import Unit, looks_like_unit, read_unit
from .words import (
    Told,
    Variable,
    Word,
    assignment,
    for_shell,
    from_shell,
    literal,
    references_in,
    resolved,
    shown_words,
)

_PYTHON = re.compile(r"(python|pypy)[0-9.]*")
# Commands that name an engine and start none.
_TALKING = ("echo", "printf", "grep", "pkill", "pgrep", "which", "alias")
# Commands that hand a text to a shell, or split it.
_CARRIERS = (
    "tmux", "screen", "byobu", "ssh", "su", "runuser", "env", "script", "srun", "watch",
    "systemd-run", "flock",
)  # fmt: skip
_SPLIT = re.compile(r"-S\s*|--split-string=")
_DEEPEST = 5
LOOKED_FOR = (
    "looked for: sglang serve, vllm serve, python -m sglang.launch_server, "
    "python -m vllm.entrypoints.openai.api_server; also behind env, docker run and their like, in "
    "a shell script, a compose service, a Kubernetes container and a systemd "
    "unit"
)


@dataclass(frozen=True, slots=True)
class Found:
    """An engine's command. `args` stand behind its entry point, which takes `takes` loose words.

    `python` is the interpreter as it is written, None where no word names one.
    """

    engine: str
    head: tuple[Word, ...]
    args: tuple[Word, ...]
    takes: int
    python: Word | None
    variables: tuple[Variable, ...] = ()
    container: Container | None = None


def find_in_words(texts: Sequence[str], told: Told) -> Found:
    """Find the engine in a command line that a shell has split already."""
    words = tuple(Word(literal(text), f"word {n}") for n, text in enumerate(texts, start=1))
    found = _in_words(words, told, 0)
    return found or _missing(words, "this command")


def find_in_text(text: str, told: Told, given: Sequence[Variable] = ()) -> Found:
    """Find the engine in a shell script, a compose file or a Kubernetes object.

    `given` are variables that are known where the text is run.
    """
    if looks_like_unit(text):
        return _in_unit(read_unit(text, told), told)
    if looks_like_yaml(text):
        try:
            containers = read_manifest(text, told)
        except ConfigError:
            if not text.lstrip().startswith("["):
                raise
        else:
            return _in_containers(containers, told)
    commands = read_script(text, told, known=_known(given))
    found = _in_commands(commands, told, 0)
    return found or _missing([word for each in commands for word in each.words], "the text")


def _in_unit(unit: Unit, told: Told) -> Found:
    """Take the first command of a unit that holds an engine."""
    files = read_env_files(unit.env_files, told)
    variables = (*unit.variables, *files)
    known = _known(variables)
    found: Found | None = None
    for command in unit.commands:
        words = tuple(resolved(word, known) for word in command)
        inner = _in_words(words, told, 1, known) if found is None else None
        if inner is None:
            told.left_out(command, "another command")
        else:
            found = replace(inner, variables=(*variables, *inner.variables))
    return found or _missing([word for each in unit.commands for word in each], "the unit")


def _missing(words: Iterable[Word], where: str) -> Found:
    for word in words:
        odd = find_odd(word.text)
        if odd is not None and odd.character not in "\n\t":
            raise ConfigError(
                f"there is no engine command in {where}, and {word.place} holds {odd}",
                hint=f"type it again by hand; {LOOKED_FOR}",
            )
    raise ConfigError(f"there is no engine command in {where}", hint=LOOKED_FOR)


def _in_containers(containers: Sequence[Container], told: Told) -> Found:
    found: Found | None = None
    for container in containers:
        inner = _inside(container, told, 1) if found is None else None
        if inner is not None:
            found = inner
        else:
            told.left_out(container.words() or _image(container), "another container")
    if found is None:
        return _missing([word for each in containers for word in each.words()], "the text")
    return found


def _image(container: Container) -> tuple[Word, ...]:
    return (container.image,) if container.image else ()


def _inside(container: Container, told: Told, depth: int) -> Found | None:
    known = _known(container.variables)
    words = container.words()
    if container.is_pod:
        words = tuple(resolved(word, known) for word in words)
    found = _in_words(words, told, depth, known)
    if found is None:
        return None
    variables = (*container.variables, *found.variables)
    return replace(found, variables=variables, container=container)


def _known(variables: Iterable[Variable]) -> dict[str, str]:
    """Give the variables whose text may stand where they are named."""
    return {
        each.name: each.value.text
        for each in variables
        if each.value is not None
        and not each.value.unsure
        and not references_in(each.value.text)
        and not is_secret_name(each.name)
        and not secrets_in(each.value.text)
    }


def _in_commands(commands: Sequence[Command], told: Told, depth: int) -> Found | None:
    """Take the first command that holds an engine; variables that were exported before count."""
    for index, command in enumerate(commands):
        found = None if _is_talk(command) else _in_words(command.words, told, depth)
        if found is None:
            continue
        if command.condition:
            where = command.words[0].place
            told.note(f"{where}: the engine starts in {command.condition}: taken as if it did")
        found = _with_exported(found, _exported(commands[:index]), told)
        told.left_out(command.redirections, "where the engine's output goes is left to you")
        for other in (*commands[:index], *commands[index + 1 :]):
            _tell_of(other, told)
        return found
    return None


def _is_talk(command: Command) -> bool:
    return bool(command.words) and command.words[0].text in _TALKING


def _is_export(command: Command) -> bool:
    return bool(sets_variables(command)) and command.words[0].text == "export"


def _exported(commands: Iterable[Command]) -> list[Variable]:
    """Give what the commands export that run in front of the engine."""
    words = [
        word
        for command in commands
        if _is_export(command) and not command.is_other
        for word in command.words[1:]
    ]
    return [variable for variable in map(assignment, words) if variable]


def _tell_of(command: Command, told: Told) -> None:
    """Name a command of a script that does not start the engine; what it exports is told of."""
    words = command.words or command.redirections
    if not sets_variables(command):
        told.left_out(words, "another command")
    elif command.is_other:
        told.left_out(words, f"it stands in the other branch of {command.condition}")
    elif not _is_export(command):
        told.left_out(words, "a variable of the shell alone, used where it is named")


def _with_exported(found: Found, exported: Sequence[Variable], told: Told) -> Found:
    """Add what a script exported; a container gets of it what it names, and no more."""
    if found.container is None:
        given = (replace(each, is_explicit=False) for each in exported)
        return replace(found, variables=(*given, *found.variables))
    known = _known(exported)
    variables: list[Variable] = []
    for each in found.variables:
        text = known.get(each.name) if each.value is None else None
        variables.append(each if text is None else replace(each, value=Word(text, each.place)))
    _not_inside([each for each in exported if each.name not in {v.name for v in variables}], told)
    return replace(found, variables=tuple(variables))


def _not_inside(variables: Iterable[Variable], told: Told) -> None:
    for each in variables:
        told.note(f"left out ({each.place}): {each.name}: it does not reach the container")


def _in_words(
    words: Sequence[Word], told: Told, depth: int, known: Mapping[str, str] | None = None
) -> Found | None:
    """Find the engine in one command, through containers and shells in front of it."""
    if depth > _DEEPEST:
        return None
    local = Told()
    container = read_run(words, local)
    if container is not None:
        found = _inside(container, local, depth + 1)
        if found is not None:
            start = next(i for i, word in enumerate(words) if word.text in RUNNING)
            told.add(local)
            before = _with_prefix(replace(found, variables=()), words[: start - 1], told)
            _not_inside(before.variables, told)
            return found
    shell = find_shell([word.text for word in words])
    if shell is not None:
        index, text = shell
        return _in_script(words, text, words[text], told, depth, known or {}, before=index)
    return _direct(words, told) or _carried(words, told, depth, known or {})


def _carried(
    words: Sequence[Word], told: Told, depth: int, known: Mapping[str, str]
) -> Found | None:
    """Find the engine in a text that another command hands to a shell, or takes apart itself."""
    names = [PurePath(word.text).name for word in words]
    first = next((index for index, name in enumerate(names) if name in _CARRIERS), None)
    if first is None:
        return None
    for index in range(first + 1, len(words)):
        word = words[index]
        text = _SPLIT.sub("", word.text)
        if any(character.isspace() for character in text):
            script = replace(word, text=text)
            found = _in_script(words, index, script, told, depth, known, before=index)
            if found is not None:
                return found
    return None


def _in_script(
    words: Sequence[Word],
    index: int,
    script: Word,
    told: Told,
    depth: int,
    known: Mapping[str, str],
    *,
    before: int,
) -> Found | None:
    """Read a text as a shell would that stands at `index`; `before` ends what is in front."""
    local = Told()
    commands = read_script(for_shell(script.text), local, known=known)
    commands = tuple(_moved(command, script.place) for command in commands)
    found = _in_commands(commands, local, depth + 1)
    if found is None:
        return None
    told.add(local)
    told.left_out(words[index + 1 :], "words for the shell in front of the engine")
    return _with_prefix(found, words[:before], told)


def _moved(command: Command, place: str) -> Command:
    words = tuple(from_shell(word, place) for word in command.words)
    others = tuple(from_shell(word, place) for word in command.redirections)
    return replace(command, words=words, redirections=others)


def _direct(words: Sequence[Word], told: Told) -> Found | None:
    entry = find_entry_point([word.text for word in words])
    if entry is None:
        return None
    if words[entry.start + 1].text == "sglang.cli.main":
        told.note(
            "python -m sglang.cli.main starts nothing and exits with 0: it is taken for "
            "sglang serve"
        )
    return _found(entry, words, told)


def _found(entry: EntryPoint, words: Sequence[Word], told: Told) -> Found:
    """Put the command together, with the interpreter in front of its entry point."""
    head = entry.start
    python: Word | None = None
    if words[head].text == "-m":
        for index in range(entry.start - 1, max(entry.start - 8, -1), -1):
            if _PYTHON.fullmatch(PurePath(words[index].text).name):
                python, head = words[index], index
                told.left_out(words[index + 1 : entry.start], "options of the interpreter")
                break
    elif "/" in words[head].text:
        told.note(
            f"{shown_words(words[head : head + 1])} names no interpreter: set engine.python "
            "where it is not the one that runs kimi-serve"
        )
    own = tuple(words[entry.start : entry.end])
    whole = (python, *own) if python else own
    found = Found(entry.engine, whole, tuple(words[entry.end :]), entry.takes, python)
    return _with_prefix(found, words[:head], told)


def _with_prefix(found: Found, before: Sequence[Word], told: Told) -> Found:
    """Take the variables that stand in front of a command, and name the rest."""
    variables: list[Variable] = []
    rest: list[Word] = []
    for word in before:
        variable = assignment(word)
        if variable is not None:
            variables.append(variable)
        else:
            rest.append(word)
    if [word.text for word in rest] not in ([], ["env"], ["exec"]):
        told.left_out(rest, "it stands in front of the engine, which kimi-serve starts itself")
    return replace(found, variables=(*variables, *found.variables))
