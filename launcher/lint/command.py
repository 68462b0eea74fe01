"""The command `kimi-serve lint`: options in, findings out, exit code 0, 1 or 2."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from kimi_serve.schemas.errors import ConfigError, KimiServeError
from kimi_serve.schemas.vocabulary import LINT_FORMAT, EngineKind

from ..options import given_flags, given_profiles, given_set_items
from ..outputs import STDIN, check_outputs
from .formats import FORMAT_NAMES

if TYPE_CHECKING:
    from .session import Options


class InternalError(KimiServeError):
    """A fault of lint itself; its text holds no value of the user's."""

    exit_code = 2


@click.command(help="Check profiles without starting anything; reads nothing but the files.")
@click.argument("files", nargs=-1, metavar="FILE... | -")
@click.option("--env", "with_env", is_flag=True, help="Look at this process's variables too.")
@click.option("--env-file", "env_files", multiple=True, help="KEY=VALUE lines as variables.")
@click.option("--check-host", is_flag=True, help="Look at this machine too.")
@click.option("--set", "set_items", multiple=True, metavar="PATH=VALUE", help="Any setting.")
@click.option("--engine", metavar="NAME@VERSION", help="Lint for this engine.")
@click.option("--select", multiple=True, metavar="RULES", help="Only these, notes too: KS2,KS301.")
@click.option("--ignore", multiple=True, metavar="RULES", help="All but these.")
@click.option(
    "--fail-on",
    type=click.Choice(["error", "warning", "info", "never"]),
    default="error",
    show_default=True,
    help="Least severe finding that makes the exit code 1.",
)
@click.option(
    "--format",
    "formats",
    multiple=True,
    type=click.Choice(FORMAT_NAMES),
    help=f"Repeatable, each with its -o; by default {LINT_FORMAT} or full.",
)
@click.option("-o", "--output", "outputs", multiple=True, help="Where it goes; - is stdout.")
@click.option("--fix", is_flag=True, help="Apply the safe fixes to the files.")
@click.option("--diff", is_flag=True, help="Show what --fix would change; writes nothing.")
@click.option("--baseline", help="Leave out what this file knows.")
@click.option("--write-baseline", help="Write what is found to this file.")
@click.option("--statistics", is_flag=True, help="Count findings by rule.")
@click.pass_context
def lint(ctx: click.Context, /, **given: Any) -> int:
    """Run, and turn a fault of our own into exit code 2 without a traceback."""
    options = _options(ctx, given)
    from .session import run

    try:
        return run(options)
    except (click.ClickException, BrokenPipeError):
        raise
    except KimiServeError as error:
        if error.exit_code == 2:
            raise
        raise ConfigError(error.message, hint=error.hint) from None
    # The border of the command: CI reads an exit code, and a traceback may hold a secret.
    except Exception as error:  # noqa: BLE001
        raise InternalError(_describe(error), hint="please report it") from None


def _describe(error: Exception) -> str:
    """Say where an error came up; its own text may hold a value."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = ""
    if trace is not None:
        place = f" in {Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"
    return f"internal error: {type(error).__name__}{place}"


def _options(ctx: click.Context, given: dict[str, Any]) -> Options:
    from ..sources.flags import check_set_items
    from .selection import parse_codes
    from .session import Options

    if given_profiles(ctx):
        raise click.UsageError("give the files after `lint`, without --profile")
    if not given["files"]:
        raise click.UsageError("give a FILE, or - for standard input")
    try:
        selected, ignored = parse_codes(given["select"]), parse_codes(given["ignore"])
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if given["fix"] and "-" in given["files"]:
        raise click.UsageError("--fix needs files; --diff takes standard input")
    if given["baseline"] and given["write_baseline"]:
        raise click.UsageError("--write-baseline writes all that is found: leave out --baseline")
    flags = dict(given_flags(ctx)) | _engine_flags(given["engine"])
    set_items = tuple(given_set_items(ctx))
    wrong = check_set_items(set_items)
    if wrong:
        raise ConfigError("--set takes PATH=VALUE, with the path of a setting", findings=wrong)
    return Options(
        files=given["files"],
        with_env=given["with_env"],
        env_files=given["env_files"],
        check_host=given["check_host"],
        flags=flags,
        set_items=set_items,
        selected=selected,
        ignored=ignored,
        fail_on=given["fail_on"],
        outputs=_checked_outputs(given),
        fix=given["fix"],
        diff=given["diff"],
        baseline=given["baseline"],
        write_baseline=given["write_baseline"],
        statistics=given["statistics"],
    )


def _engine_flags(text: str | None) -> dict[str, object]:
    if text is None:
        return {}
    kind, at, version = text.partition("@")
    if kind not in get_args(EngineKind) or (at and not version.strip()):
        raise click.UsageError("--engine takes NAME or NAME@VERSION, such as sglang@0.5.23")
    flags: dict[str, object] = {"engine__kind": kind}
    return flags | {"engine__version": version} if at else flags


def _checked_outputs(given: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """Pair formats and files; a report may overwrite neither another one nor what is read."""
    pairs = _outputs(given["formats"], given["outputs"], is_diff=given["diff"])
    written = [("a report", output) for _, output in pairs if output != "-"]
    if given["write_baseline"]:
        written.append(("--write-baseline", given["write_baseline"]))
    read = [STDIN if name == "-" else name for name in given["files"]]
    read += [name for name in (*given["env_files"], given["baseline"]) if name]
    check_outputs(written, read)
    return pairs


def _outputs(
    formats: tuple[str, ...], outputs: tuple[str, ...], *, is_diff: bool
) -> tuple[tuple[str, str], ...]:
    """Pair each format with where it goes; one of them may be standard output."""
    if not formats:
        formats = (_default_format(),)
    if len(outputs) > len(formats) or (len(formats) > 1 and len(outputs) != len(formats)):
        raise click.UsageError("give each --format its -o, in the same order; - is stdout")
    pairs = tuple(zip(formats, outputs or ("-",), strict=True))
    on_stdout = [format for format, output in pairs if output == "-"]
    if len(on_stdout) > 1:
        raise click.UsageError("only one --format can go to standard output")
    if is_diff and on_stdout and on_stdout[0] not in ("full", "concise"):
        raise click.UsageError(f"--diff prints to standard output: give {on_stdout[0]} an -o FILE")
    return pairs


def _default_format() -> str:
    word = os.environ.get(LINT_FORMAT, "").strip()
    if word and word not in FORMAT_NAMES:
        raise ConfigError(f"{LINT_FORMAT} is no format", hint=f"one of {', '.join(FORMAT_NAMES)}")
    return word or ("concise" if os.environ.get("GITHUB_ACTIONS") == "true" else "full")
