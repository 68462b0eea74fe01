"""One run of lint over files: reads, mends, selects, compares with a baseline, writes."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO, cast

import click

from kimi_serve.schemas.errors import ConfigError
from kimi_serve.schemas.fields import setting_fields
from kimi_serve.schemas.findings import Finding
from kimi_serve.schemas.provenance import Origin

from ..counted import counted
from ..secrets.known import Known
from ..secrets.shapes import cover, secrets_in
from ..sources.characters import printable
from ..sources.files import read_file, reason_of
from ..sources.yaml_tree import MAX_BYTES
from .baseline import MAX_BYTES as MAX_BASELINE_BYTES
from .baseline import apply_baseline, baseline_text, fingerprint, home_of, read_baseline
from .env_file import read_env_file
from .formats import render
from .mending import STDIN, File, Mending, lint_one
from .output import write_output
from .report import Report, Reported, renamed
from .run import Linted, Surroundings, load
from .scrub import scrub_report
from .selection import FailOn, fails, select
from .source_text import SourceText


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


def run(options: Options) -> int:
    """Do all that was asked; gives the exit code."""
    around, env_sources = _surroundings(options)
    errors: list[str] = []
    files = list(_read(options.files, errors))
    mending = Mending(around, options.selected, options.ignored, is_diff=options.diff)
    if options.fix or options.diff:
        files = [replace(file, data=mending.mended(file)) for file in files]
        errors += mending.errors
    linted = [lint_one(file, around) for file in files]
    report = _report(linted, env_sources, options)
    # With --diff the file stays as it is, and so does the verdict.
    found = [item.finding for item in report.reported]
    exit_code = 2 if errors else int(fails(found, options.fail_on))
    report = replace(report, errors=tuple(errors), exit_code=exit_code)
    for error in errors:
        click.echo(f"kimi-serve: error: {error}", err=True)
    if report.num_vanished:
        gone = counted(report.num_vanished, "finding")
        verb = "is" if report.num_vanished == 1 else "are"
        click.echo(f"kimi-serve: {gone} of the baseline {verb} gone: --write-baseline", err=True)
    for note in mending.notes(len(found)) if options.diff else ():
        click.echo(f"kimi-serve: {note}", err=True)
    if options.write_baseline:
        return _write_baseline(report, options.write_baseline)
    return _write(report, options)


def _surroundings(options: Options) -> tuple[Surroundings, dict[str, SourceText]]:
    env: dict[str, str] | None = dict(os.environ) if options.with_env else None
    places: dict[str, Origin] = {}
    sources: dict[str, SourceText] = {}
    for name in options.env_files:
        try:
            data = load(Path(name), is_named=True)
        except (OSError, ValueError) as error:
            raise ConfigError(f"{printable(name)} cannot be read: {reason_of(error)}") from None
        if len(data) > MAX_BYTES:
            size = f"{MAX_BYTES // 1024} KiB"
            raise ConfigError(f"{printable(name)} cannot be read: it is larger than {size}")
        read = read_env_file(data, name)
        env = {**(env or {}), **read.values}
        places |= read.places
        sources[printable(name)] = SourceText.read_plain(data)
    around = Surroundings(env, places, options.flags, options.set_items, options.check_host)
    return around, sources


def _read(names: tuple[str, ...], errors: list[str]) -> Iterator[File]:
    """Read the profiles, each once; one that cannot be read is an error of the run."""
    taken: dict[str | tuple[int, int], str] = {}
    for name in names:
        taken.setdefault(_identity(name), name)
    for name in taken.values():
        if not name:
            errors.append("a FILE is the empty text: is a variable of the command not set?")
            continue
        if name == "-":
            stdin = cast("TextIO | None", sys.stdin)  # None when it was closed at the start
            if stdin is None:
                errors.append("- cannot be read: standard input is closed")
            else:
                yield File(STDIN, None, stdin.buffer.read(MAX_BYTES + 1))
            continue
        try:
            yield File(name, Path(name), load(Path(name), is_named=True))
        except (OSError, ValueError) as error:
            errors.append(_unreadable(name, error))


def _unreadable(name: str, error: OSError | ValueError) -> str:
    """Say why a file cannot be read; a setting that lost its `--set` is not repeated whole."""
    path, equals, _ = name.partition("=")
    if equals and path.strip() in setting_fields():
        path = path.strip()
        return f"{path}=... is a setting and no file: write --set {path}=VALUE"
    shown = cover(name, secrets_in(name))
    return f"{printable(shown)} cannot be read: {reason_of(error)}"


def _identity(name: str) -> str | tuple[int, int]:
    """Tell a file by what it is, not by how it is spelt; what is no file by its name."""
    try:
        found = os.stat(name)
    except (OSError, ValueError):
        return name
    return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else name


def _report(
    linted: list[Linted], env_sources: Mapping[str, SourceText], options: Options
) -> Report:
    """Select, take off the baseline, and give each finding its fingerprint; each once."""
    sources = {**env_sources}
    marks: dict[Finding, Reported] = {}
    files: dict[str, str] = {}
    spelt = {_identity(one.files[one.name]): one.name for one in linted}
    for one in linted:
        sources |= one.sources
        files |= one.files
        # A parent that is linted itself has the name that it was given.
        given = {shown: spelt.get(_identity(file), shown) for shown, file in one.files.items()}
        found = (renamed(finding, given) for finding in one.findings)
        for finding in select(found, options.selected, options.ignored):
            source = sources.get(home_of(finding, one.name))
            mark = fingerprint(finding, one.name, source)
            marks.setdefault(finding, Reported(finding, one.name, mark))
    reported, vanished = tuple(marks.values()), 0
    if options.baseline:
        known = _known(options.baseline)
        judged = apply_baseline({item.finding: item.fingerprint for item in reported}, known)
        reported, vanished = tuple(marks[found] for found in judged.new), judged.num_vanished
    names = tuple(one.name for one in linted)
    files |= {printable(name): name for name in options.env_files}
    report = Report(names, reported, sources, num_vanished=vanished, names=files)
    # Fingerprints are taken before: they do not depend on what else is linted.
    return scrub_report(report, Known(value for one in linted for value in one.known.values))


def _known(name: str) -> dict[str, int]:
    try:
        data = read_file(name, MAX_BASELINE_BYTES + 1, is_named=True)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{printable(name)} cannot be read: {reason_of(error)}") from None
    try:
        return read_baseline(data)
    except ValueError as error:
        raise ConfigError(f"{printable(name)}: {error}") from None


def _write_baseline(report: Report, name: str) -> int:
    """Write the baseline; the findings in it are accepted with that."""
    if report.errors:
        return 2
    _save(baseline_text((item.finding, item.fingerprint) for item in report.reported), name)
    known = counted(len(report.reported), "finding")
    click.echo(f"kimi-serve: {printable(name)} holds {known}", err=True)
    return 0


def _write(report: Report, options: Options) -> int:
    """Write every format; gives the exit code.

    Where one cannot be written, the others are written again, to say so, and it goes to standard
    output, if nothing else does.
    """
    wanted = [pair for pair in options.outputs if not (options.diff and pair[1] == "-")]
    failed = {pair: problem for pair in wanted if (problem := _problem(report, options, *pair))}
    if not failed:
        return report.exit_code
    for problem in failed.values():
        click.echo(f"kimi-serve: error: {problem}", err=True)
    report = replace(report, errors=(*report.errors, *failed.values()), exit_code=2)
    is_free = not options.diff and all(output != "-" for _, output in wanted)
    for format, output in wanted:
        if (format, output) not in failed and output != "-":
            _problem(report, options, format, output)
    if is_free:
        _problem(report, options, next(iter(failed))[0], "-")
    return 2


def _problem(report: Report, options: Options, format: str, output: str) -> str:
    """Write one format; gives what prevented it, "" when it was written."""
    is_counting = options.statistics and format in ("full", "concise")
    text = _statistics(report) if is_counting else render(format, report)
    try:
        _save(text, output)
    except ConfigError as error:
        return error.message
    return ""


def _statistics(report: Report) -> str:
    from .formats.text import statistics

    return statistics(report)


def _save(text: str, output: str) -> None:
    try:
        write_output(text, output)
    except BrokenPipeError:
        raise
    except (OSError, ValueError) as error:
        where = "standard output" if output == "-" else printable(output)
        raise ConfigError(f"{where} cannot be written: {reason_of(error)}") from None
