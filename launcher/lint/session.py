"""One run of lint over files: reads, mends, selects, compares with a baseline, writes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO, cast

import click

from kimi_serve.schemas.errors import ConfigError
from kimi_serve.schemas.findings import Finding
from kimi_serve.schemas.provenance import Origin

from ..sources.characters import printable
from ..sources.yaml_tree import MAX_BYTES
from .baseline import (
    apply_baseline,
    baseline_text,
    fingerprint,
    home_of,
    read_baseline,
    repository_root,
)
from .env_file import read_env_file
from .formats import render
from .output import write_output
from .report import Report, Reported, plural
from .run import Linted, Surroundings, lint_profile, load
from .selection import FailOn, fails, select
from .source_text import SourceText

STDIN = "<stdin>"


@dataclass(frozen=True, slots=True)
class Options:
    """The command line, checked. `outputs` pairs formats with files; "-" is standard output."""

    files: tuple[str, ...]
    with_env: bool
    env_files: tuple[str, ...]
    check_host: bool
    flags: Mapping[str, object]
    set_items: tuple[str, ...]
    selected: tuple[str, ...]
    ignored: tuple[str, ...]
    fail_on: FailOn
    outputs: tuple[tuple[str, str], ...]
    fix: bool
    diff: bool
    baseline: str | None
    write_baseline: str | None
    statistics: bool


@dataclass(frozen=True, slots=True)
class _File:
    """One profile as it was given."""

    name: str
    path: Path | None
    data: bytes

    @property
    def folder(self) -> Path:
        return self.path.parent if self.path else Path(".")


def run(options: Options) -> int:
    """Do all that was asked; gives the exit code."""
    around, env_sources = _surroundings(options)
    errors: list[str] = []
    files = list(_read(options.files, errors))
    if options.fix or options.diff:
        files = [_mended(file, options, around, errors) for file in files]
    linted = [_lint(file, around) for file in files]
    report = _report(linted, env_sources, options)
    # With --diff the file stays as it is, and so does the verdict.
    found = [item.finding for item in report.reported]
    exit_code = 2 if errors else int(fails(found, options.fail_on))
    report = replace(report, errors=tuple(errors), exit_code=exit_code)
    for error in errors:
        click.echo(f"kimi-serve: error: {error}", err=True)
    if report.num_vanished:
        gone = plural(report.num_vanished, "finding")
        click.echo(f"kimi-serve: {gone} of the baseline are gone: --write-baseline", err=True)
    if options.write_baseline:
        return _write_baseline(report, options.write_baseline)
    _write(report, options)
    return exit_code


def _surroundings(options: Options) -> tuple[Surroundings, dict[str, SourceText]]:
    env: dict[str, str] | None = dict(os.environ) if options.with_env else None
    places: dict[str, Origin] = {}
    sources: dict[str, SourceText] = {}
    for name in options.env_files:
        try:
            data = load(Path(name))
        except (OSError, ValueError) as error:
            raise ConfigError(f"{printable(name)} cannot be read: {_reason(error)}") from None
        read = read_env_file(data, name)
        env = {**(env or {}), **read.values}
        places |= read.places
        sources[printable(name)] = SourceText.read_plain(data)
    around = Surroundings(env, places, options.flags, options.set_items, options.check_host)
    return around, sources


def _read(names: tuple[str, ...], errors: list[str]) -> Iterator[_File]:
    """Read the profiles, each once; one that cannot be read is an error of the run."""
    for name in dict.fromkeys(names):
        if name == "-":
            stdin = cast("TextIO | None", sys.stdin)  # None when it was closed at the start
            if stdin is None:
                errors.append("- cannot be read: standard input is closed")
            else:
                yield _File(STDIN, None, stdin.buffer.read(MAX_BYTES + 1))
            continue
        try:
            yield _File(name, Path(name), load(Path(name)))
        except (OSError, ValueError) as error:
            errors.append(f"{printable(name)} cannot be read: {_reason(error)}")


def _reason(error: OSError | ValueError) -> str:
    strerror = error.strerror if isinstance(error, OSError) else None
    return strerror or "that is no file name"


def _lint(file: _File, around: Surroundings) -> Linted:
    return lint_profile(
        file.data, name=file.name, folder=file.folder, around=around, file=file.path
    )


def _mended(file: _File, options: Options, around: Surroundings, errors: list[str]) -> _File:
    """Apply the safe fixes of what is selected; with --diff they are shown instead."""
    from .mend import diff, mend, write_file

    def reported(data: bytes) -> tuple[Finding, ...]:
        written = _lint(replace(file, data=data), around).written
        return select(written, options.selected, options.ignored)

    data = mend(file.data, printable(file.name), reported)
    if data == file.data:
        return file
    if options.diff:
        write_output(diff(file.data, data, printable(file.name)), "-")
        return file
    try:
        write_file(Path(file.name), data)
    except OSError as error:
        errors.append(f"{printable(file.name)} cannot be written: {_reason(error)}")
        return file
    return replace(file, data=data)


def _report(
    linted: list[Linted], env_sources: Mapping[str, SourceText], options: Options
) -> Report:
    """Select, take off the baseline, and give each finding its fingerprint; each once."""
    sources = {**env_sources}
    marks: dict[Finding, Reported] = {}
    for one in linted:
        sources |= one.sources
        for finding in select(one.findings, options.selected, options.ignored):
            root = repository_root(Path(one.name).parent)
            source = sources.get(home_of(finding, one.name))
            mark = fingerprint(finding, one.name, source, root)
            marks.setdefault(finding, Reported(finding, one.name, mark))
    reported, vanished = tuple(marks.values()), 0
    if options.baseline:
        known = _known(options.baseline)
        judged = apply_baseline({item.finding: item.fingerprint for item in reported}, known)
        reported, vanished = tuple(marks[found] for found in judged.new), judged.num_vanished
    names = tuple(one.name for one in linted)
    return Report(names, reported, sources, num_vanished=vanished)


def _known(name: str) -> dict[str, int]:
    try:
        return read_baseline(Path(name).read_bytes())
    except OSError as error:
        raise ConfigError(f"{printable(name)} cannot be read: {_reason(error)}") from None
    except ValueError as error:
        raise ConfigError(f"{printable(name)}: {error}") from None


def _write_baseline(report: Report, name: str) -> int:
    """Write the baseline; the findings in it are accepted with that."""
    if report.errors:
        return 2
    _save(baseline_text((item.finding, item.fingerprint) for item in report.reported), name)
    known = plural(len(report.reported), "finding")
    click.echo(f"kimi-serve: {printable(name)} holds {known}", err=True)
    return 0


def _write(report: Report, options: Options) -> None:
    for format, output in options.outputs:
        is_text = format in ("full", "concise")
        if options.diff and output == "-":
            continue
        is_counting = options.statistics and is_text
        text = _statistics(report) if is_counting else render(format, report)
        _save(text, output)


def _statistics(report: Report) -> str:
    from .formats.text import statistics

    return statistics(report)


def _save(text: str, output: str) -> None:
    try:
        write_output(text, output)
    except BrokenPipeError:
        raise
    except (OSError, ValueError) as error:
        raise ConfigError(f"{printable(output)} cannot be written: {_reason(error)}") from None
