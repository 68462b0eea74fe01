"""The `plan` command: what would run, as text, JSON or one line for a shell."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kimi_serve.schemas.errors import PlanError

from .options import SettingsCommand, given_flags, given_profiles, given_set_items
from .outputs import check_outputs, profiles_of
from .refusal import refusal

if TYPE_CHECKING:
    from kimi_serve.schemas.plan import LaunchPlan, LoadedSettings

    from .report.budget import Paper

FORMATS = ("text", "json", "shell")
_WIDEST = 120


@click.command(cls=SettingsCommand, help="Print every resolved value with its origin, and stop.")
@click.argument("profile_argument", metavar="[PROFILE]", required=False, type=click.Path())
@click.option(
    "--format",
    "output",
    type=click.Choice(FORMATS),
    default=None,
    help="text; json; shell: one line that starts the same, secrets as ${NAME}.",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option("--changed", is_flag=True, help="Leave out settings that nobody set.")
@click.option(
    "--picture",
    metavar="FILE.png",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also draw the memory budget by the number of workers.",
)
@click.option("--compare", metavar="sglang,vllm", help="The plan for each engine, side by side.")
@click.pass_context
def plan(
    ctx: click.Context,
    /,
    profile_argument: str | None,
    output: str | None,
    as_json: bool,
    changed: bool,
    picture: Path | None,
    compare: str | None,
    **_: object,
) -> int:
    """Print the plan, or two; the exit code is that with which `serve` would refuse the worse."""
    from .pipeline import load, make_plan

    if picture is not None and picture.suffix.lower() != ".png":
        raise click.UsageError(f"--picture {picture}: the picture is a PNG; name it FILE.png")
    if as_json and output not in (None, "json"):
        raise click.UsageError(f"--json and --format {output} contradict each other")
    output = "json" if as_json else output or "text"
    env = dict(os.environ)
    profiles = given_profiles(ctx)
    if profile_argument is not None:
        profiles.append(Path(profile_argument))
    loaded = load(profiles, given_flags(ctx), given_set_items(ctx), env)
    if picture is not None and compare is not None:
        raise click.UsageError("--picture draws one plan, and --compare makes two")
    check_outputs([("--picture", picture)], [*profiles, *profiles_of(loaded.values)])
    if compare is not None:
        return _exit_code(*_print_compared(loaded, compare, env, output, changed))
    made = make_plan(loaded, env)
    _print_plan(made, output, changed)
    if picture is not None:
        _draw(made, picture)
    return _exit_code(made)


def _exit_code(*plans: LaunchPlan) -> int:
    """Give the code of the worst refusal: wrong text is wrong on every machine."""
    refused = [each for each in map(refusal, plans) if each is not None]
    return min((each.exit_code for each in refused), default=0)


def _print_plan(made: LaunchPlan, output: str, changed: bool) -> None:
    from .report.render import plan_json, plan_text
    from .report.shell import shell_line, shell_warnings

    if output == "json":
        click.echo(json.dumps(plan_json(made, changed_only=changed), indent=2))
    elif output == "text":
        click.echo(plan_text(made, changed_only=changed, paper=_paper()))
    else:
        _warn(made)
        for warning in shell_warnings(made):
            click.echo(f"kimi-serve: warning: {warning}", err=True)
        click.echo(shell_line(made))


def _paper() -> Paper:
    """Look at where the text goes: as wide as a terminal, block elements where they can be said."""
    from .report.budget import SIGNS, Paper

    is_terminal = sys.stdout.isatty() or "COLUMNS" in os.environ
    width = min(shutil.get_terminal_size().columns, _WIDEST) if is_terminal else 80
    try:
        SIGNS.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return Paper(width, has_blocks=False)
    return Paper(width)


def _draw(made: LaunchPlan, picture: Path) -> None:
    if made.budget is None:
        raise PlanError(
            "there is no memory budget to draw: no worker can use a GPU here",
            hint="set gpu.total_mib to plan for another machine",
        )
    from .report.budget_picture import save_budget_picture

    save_budget_picture(made.budget, picture)


def _warn(made: LaunchPlan) -> None:
    """Say beside a line that is to be pasted what is wrong with it."""
    from .secrets.given import secrets_of_settings

    known = secrets_of_settings(made)
    for finding in made.findings:
        if finding.severity != "info":
            click.echo(known.hide(str(finding)), err=True)


def _print_compared(
    loaded: LoadedSettings, names: str, env: Mapping[str, str], output: str, changed: bool
) -> list[LaunchPlan]:
    from .compare import compare, engine_names
    from .report.compare import compare_json, compare_text
    from .report.redact import hide_in
    from .secrets.given import secrets_of_settings

    if output == "shell":
        raise click.UsageError("--compare shows two commands: take --format text or json")
    compared = compare(loaded, engine_names(names), env)
    plans = {each.plan.engine.value: each.plan for each in compared}
    left_out = {each.plan.engine.value: each.left_out for each in compared}
    # Also of the settings that are left out of a plan.
    known = secrets_of_settings(loaded)
    if output == "json":
        document = hide_in(compare_json(plans, left_out, changed_only=changed), known)
        click.echo(json.dumps(document, indent=2))
    else:
        click.echo(known.hide(compare_text(plans, left_out, changed_only=changed)))
    return list(plans.values())
