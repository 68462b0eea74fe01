"""The commands: thin, each loads what it runs."""

from __future__ import annotations

import os
from pathlib import Path

import click

from kimi_serve.schemas.errors import PlanError
from kimi_serve.schemas.plan import LaunchPlan

from .adopt.command import adopt
from .doctor_command import doctor
from .lint.command import lint
from .lint.rule_command import rule
from .options import (
    SettingsCommand,
    SettingsGroup,
    given_flags,
    given_profiles,
    given_set_items,
)
from .outputs import check_outputs, profiles_of
from .plan_command import plan
from .refusal import OVERRIDE
from .schema_command import schema
from .verify.command import verify

_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.group(
    cls=SettingsGroup,
    invoke_without_command=True,
    context_settings=_CONTEXT,
    help="Decide where a Kimi server's images are decoded and preprocessed, say why, and start "
    "the workers that do it. Without a command: serve.",
)
@click.version_option(package_name="kimi-serve")
@click.option(OVERRIDE, is_flag=True, help="Serve in spite of findings that are errors.")
@click.pass_context
def cli(ctx: click.Context, /, start_anyway: bool, **_: object) -> None:
    """Serve, unless a command follows."""
    if ctx.invoked_subcommand is None:
        _serve(ctx, start_anyway)


def _serve(ctx: click.Context, start_anyway: bool) -> None:
    env = dict(os.environ)
    given = given_profiles(ctx), given_flags(ctx), given_set_items(ctx)
    from .pipeline import load, make_plan
    from .refusal import refusal

    def reread() -> LaunchPlan:
        new = make_plan(load(*given, env), env)
        refused = None if start_anyway else refusal(new)
        if refused is not None:
            raise refused
        return new

    loaded = load(*given, env)
    from kimi_serve.preprocess import logs

    logs.configure(loaded.settings.log.level, loaded.settings.log.format, process="kimi-serve")
    made = make_plan(loaded, env)
    from .serve import serve

    serve(made, env, reread, start_anyway=start_anyway)


for command in (adopt, doctor, lint, plan, rule, schema, verify):
    cli.add_command(command)


@cli.command(cls=SettingsCommand, help="Show one setting: its value and everyone who set it.")
@click.argument("path")
@click.pass_context
def explain(ctx: click.Context, /, path: str, **_: object) -> None:
    """Print one setting."""
    from .pipeline import load
    from .report.explain import explain_text

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
    profiles = given_profiles(ctx)
    loaded = load(profiles, given_flags(ctx), given_set_items(ctx), env)
    read = [*map(str, (*files, *profiles)), *profiles_of(loaded.values)]
    check_outputs([("--out", out), ("--picture", picture)], read)
    made = make_plan(loaded, env)
    if not made.worker_specs():
        raise PlanError(
            f"preprocess has no processor to show: {made.engine.value} ({made.engine.source}) "
            "preprocesses images itself, not the built-in workers",
            hint="add --engine none to see what the built-in workers make of the files",
        )
    from .preprocess_files import preprocess_files

    for line in preprocess_files(made.worker_specs()[0], files, out=out, picture=picture):
        click.echo(line)
