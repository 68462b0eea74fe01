"""One run of adopt: reads what was given, prints the profile, and lints it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO, cast

import click

from kimi_serve.schemas.errors import ConfigError
from kimi_serve.schemas.findings import Finding

from ..lint.baseline import fingerprint, home_of
from ..lint.formats import render
from ..lint.output import write_output
from ..lint.report import Report, Reported
from ..lint.run import Linted, lint_profile
from ..lint.selection import fails, select
from ..outputs import STDIN, check_outputs
from ..sources.characters import printable
from ..sources.files import reason_of
from ..sources.yaml_tree import MAX_BYTES
from .adoption import Adoption, adopt
from .environment import read_env_files
from .find import LOOKED_FOR, Found, find_in_text, find_in_words
from .words import EnvFile, Told, Variable, Word, literal

NAME = "<adopted>"


@dataclass(frozen=True, slots=True)
class Options:
    """The command line, checked. Without words the text is on standard input."""

    words: tuple[str, ...]
    env_files: tuple[str, ...]
    output: str
    format: str


def run(options: Options) -> int:
    """Do all that was asked; gives the exit code."""
    told = Told()
    files = [EnvFile(Word(literal(name))) for name in options.env_files]
    given = tuple(read_env_files(files, told, is_required=True))
    folder = "." if options.output == "-" else os.path.dirname(options.output) or "."
    adoption = adopt(_found(options, told, given), told, given, folder)
    report = judge(adoption, options.output)
    if options.output != "-":
        read = told.files if options.words else [*told.files, STDIN]
        check_outputs([("the profile", options.output)], read)
    _save(adoption.text, options.output)
    if options.format in ("full", "concise"):  # a program reads the others, and they only
        for note in adoption.notes:
            click.echo(f"kimi-serve: note: {note}", err=True)
    click.echo(render(options.format, report), err=True, nl=False)
    return report.exit_code


def judge(adoption: Adoption, output: str = "-") -> Report:
    """Lint the profile as the file that it becomes, and add what is said of the command."""
    name = NAME if output == "-" else output
    path = None if output == "-" else Path(output)
    folder = path.parent if path else Path(".")
    linted = lint_profile(adoption.text.encode(), name=name, folder=folder, file=path)
    found = select((*adoption.findings, *linted.findings))
    reported = tuple(
        Reported(finding, linted.name, _mark(finding, linted)) for finding in dict.fromkeys(found)
    )
    return Report((linted.name,), reported, linted.sources, exit_code=int(fails(found, "error")))


def _mark(finding: Finding, linted: Linted) -> str:
    source = linted.sources.get(home_of(finding, linted.name))
    return fingerprint(finding, linted.name, source)


def _found(options: Options, told: Told, given: Sequence[Variable]) -> Found:
    if len(options.words) > 1:
        return find_in_words([_decodable(word) for word in options.words], told)
    text = options.words[0] if options.words else _stdin()
    if os.path.isfile(text) and len(text) < 4096:
        raise ConfigError(
            "a file was given as the command", hint=f"kimi-serve adopt < {printable(text)}"
        )
    if not text.strip():
        raise ConfigError("there is no command in an empty text", hint=LOOKED_FOR)
    return find_in_text(_decodable(text).removeprefix("\ufeff"), told, given)


def _decodable(text: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise ConfigError("the command is not UTF-8", hint="type it again by hand") from None
    return text


def _stdin() -> str:
    stdin = cast("TextIO | None", sys.stdin)
    if stdin is None:
        raise ConfigError("standard input is closed", hint="give the command after `--`")
    if stdin.isatty():
        raise ConfigError(
            "no command was given",
            hint="kimi-serve adopt -- python -m sglang.launch_server ..., or a text on standard "
            "input: kimi-serve adopt < run.sh",
        )
    data = stdin.buffer.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ConfigError(f"the text is larger than {MAX_BYTES // 1024} KiB")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"byte {error.start} of standard input is not UTF-8") from None


def _save(text: str, output: str) -> None:
    try:
        write_output(text, output)
    except BrokenPipeError:
        raise
    except (OSError, ValueError) as error:
        raise ConfigError(f"{printable(output)} cannot be written: {reason_of(error)}") from None
