"""The command line: thin commands, and the one place that turns errors into exit codes."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

import click

from kimi_serve.schemas.errors import ConfigError, KimiServeError, PlanError

from .lint.command import lint
from .lint.failure import report_failure
from .lint.rule_command import rule
from .options import (
    SettingsCommand,
    SettingsGroup,
    given_flags,
    given_profiles,
    given_set_items,
)
from .schema_command import schema
from .sources.flags import check_argv
from .version import VERSION

_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


def main() -> NoReturn:
    """Run the program and exit with its code."""
    sys.exit(run(sys.argv[1:]))


def run(argv: list[str]) -> int:
    """Run one command line; gives the exit code, every error is one message on stderr."""
    try:
        odd = check_argv(argv)
        if odd:
            raise ConfigError("the command line has characters that look like others", findings=odd)
        result = cli.main(argv, prog_name="kimi-serve", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except click.ClickException as error:
        error.show()
        report_failure(argv, error.format_message())
        return 2
    except click.Abort:
        return 130
    except BrokenPipeError:
        # Nobody reads any more; Python must not try to flush once again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KimiServeError as error:
        _show(error)
        report_failure(argv, error.message)
        return error.exit_code


def _show(error: KimiServeError) -> None:
    findings = error.findings if isinstance(error, ConfigError) else ()
    for finding in findings:
        click.echo(str(finding), err=True)
        if finding.help:
            click.echo(f"  help: {finding.help}", err=True)
    click.echo(f"kimi-serve: error: {error.message}", err=True)
    if error.hint:
        click.echo(f"  help: {error.hint}", err=True)


@click.group(
    cls=SettingsGroup,
    invoke_without_command=True,
    context_settings=_CONTEXT,
    help="Decide where a Kimi server's images are decoded and preprocessed, say why, and start "
    "the workers that do it. Without a command: serve.",
)
@click.version_option(VERSION, package_name="kimi-serve")
@click.pass_context
def cli(ctx: click.Context, /, **_: object) -> None:
    """Serve, unless a command follows."""
    if ctx.invoked_subcommand is None:
        _serve(ctx)


def _serve(ctx: click.Context) -> None:
    # Until the server has its own handlers there is nothing to finish.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: sys.exit(0))
    env = dict(os.environ)
    from .pipeline import load, make_plan

    loaded = load(given_profiles(ctx), given_flags(ctx), given_set_items(ctx), env)
    from kimi_serve.preprocess import logs

    logs.configure(loaded.settings.log.level, loaded.settings.log.format, process="kimi-serve")
    plan = make_plan(loaded, env)
    from .serve import serve

    serve(plan, env)


for command in (lint, rule, schema):
    cli.add_command(command)


@cli.command(cls=SettingsCommand, help="Print every resolved value with its origin, and stop.")
@click.argument("profile_argument", metavar="[PROFILE]", required=False, type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="JSON instead of text.")
@click.option("--changed", is_flag=True, help="Leave out settings that nobody set.")
@click.pass_context
def plan(
    ctx: click.Context, /, profile_argument: str | None, as_json: bool, changed: bool, **_: object
) -> None:
    """Print the plan."""
    from .pipeline import load, make_plan
    from .report.render import plan_json, plan_text

    env = dict(os.environ)
    profiles = given_profiles(ctx)
    if profile_argument is not None:
        profiles.append(Path(profile_argument))
    made = make_plan(load(profiles, given_flags(ctx), given_set_items(ctx), env), env)
    if as_json:
        click.echo(json.dumps(plan_json(made, changed_only=changed), indent=2))
    else:
        click.echo(plan_text(made, changed_only=changed))


@cli.command(cls=SettingsCommand, help="Show one setting: its value and everyone who set it.")
@click.argument("path")
@click.pass_context
def explain(ctx: click.Context, /, path: str, **_: object) -> None:
    """Print one setting."""
    from .pipeline import load
    from .report.render import explain_text

    env = dict(os.environ)
    loaded = load(given_profiles(ctx), given_flags(ctx), given_set_items(ctx), env)
    click.echo(explain_text(loaded, path))


@cli.command(cls=SettingsCommand, help="Put image files through the processor, without a server.")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="Write a safetensors file.")
@click.option(
    "--picture",
    type=click.Path(path_type=Path),
    help="Write a PNG of the resized image with its token grid (one file only).",
)
@click.pass_context
def preprocess(
    ctx: click.Context,
    /,
    files: tuple[Path, ...],
    out: Path | None,
    picture: Path | None,
    **_: object,
) -> None:
    """Process files and print what the model would see of them."""
    from .pipeline import load, make_plan

    env = dict(os.environ)
    made = make_plan(load(given_profiles(ctx), given_flags(ctx), given_set_items(ctx), env), env)
    if not made.worker_specs():
        raise PlanError(
            f"preprocess has no processor to show: {made.engine.value} ({made.engine.source}) "
            "preprocesses images itself, not the built-in workers",
            hint="add --engine none to see what the built-in workers make of the files",
        )
    from .preprocess_files import preprocess_files

    for line in preprocess_files(made.worker_specs()[0], files, out=out, picture=picture):
        click.echo(line)
