"""The `verify` command: measures this host and writes the report."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kimi_serve.schemas.errors import ConfigError
from kimi_serve.schemas.vocabulary import FORCE_CPU

from ..options import SettingsCommand, given_flags, given_profiles, given_set_items
from ..outputs import check_outputs, profiles_of

if TYPE_CHECKING:
    from kimi_serve.schemas.plan import LaunchPlan

    from .results import Report

_MOST_WORKERS = 256
_REPORTS = ("report.txt", "report.json", "report.html")


@click.command(
    cls=SettingsCommand,
    help="Measure this host: parity of pixels, memory, throughput by worker count, with the CPU "
    "forced and on the GPU where there is one. Exit code 0 when all that was measured holds, 1 "
    "when something is broken.",
)
@click.option(
    "--images",
    type=click.Path(path_type=Path, file_okay=False),
    help="Verify with the images of this folder instead of generated ones.",
)
@click.option(
    "--workers", default="1,2,4,8,16", show_default=True, help="Worker counts to measure."
)
@click.option(
    "--seconds",
    default=3.0,
    show_default=True,
    type=click.FloatRange(0.1, 600),
    help="Time under load for each worker count.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write report.txt, report.json and report.html there.",
)
@click.pass_context
def verify(
    ctx: click.Context,
    /,
    images: Path | None,
    workers: str,
    seconds: float,
    out: Path | None,
    **_: object,
) -> int:
    """Run, print, write; gives the exit code."""
    from .images import choose
    from .run import Task, Verification
    from .text import report_lines
    from .unwinding import unwound_by_signals

    counts = _worker_counts(workers)
    env = dict(os.environ)
    forced, free = _plans(ctx, env)
    if out is not None:
        reports = [("--out", out / name) for name in _REPORTS]
        check_outputs(reports, [*given_profiles(ctx), *profiles_of(forced.values)])
        _make_folder(out)  # before minutes of work
    task = Task(forced, free, choose(images, forced.worker_specs()[0].rules), counts, seconds, env)
    with (
        unwound_by_signals(),
        click.progressbar(
            length=task.num_steps, label="verifying", file=sys.stderr, item_show_func=_shown
        ) as bar,
    ):
        report = Verification(task, lambda name: bar.update(1, name)).run()
    lines = list(report_lines(report))
    click.echo("\n".join(lines))
    if out is not None:
        _write(report, lines, out)
    return 0 if report.holds else 1


def _shown(name: str | None) -> str:
    return (name or "")[:40]


def _plans(ctx: click.Context, env: Mapping[str, str]) -> tuple[LaunchPlan, LaunchPlan]:
    """Resolve the profile with the CPU forced, and as it would be without that."""
    from kimi_serve.schemas.fields import setting_fields

    from ..pipeline import load, make_plan

    fields = setting_fields()
    made: list[LaunchPlan] = []
    for is_forced in (True, False):
        # Workers are verified, whoever serves.
        flags = dict(given_flags(ctx)) | {
            fields[FORCE_CPU].parameter: is_forced,
            fields["engine.kind"].parameter: "none",
        }
        loaded = load(given_profiles(ctx), flags, given_set_items(ctx), env)
        made.append(make_plan(loaded, env))
    if made[0].settings.log.level == "info":
        made = [_quiet(plan) for plan in made]
    return made[0], made[1]


def _quiet(plan: LaunchPlan) -> LaunchPlan:
    """Keep workers from logging between the steps of the progress bar."""
    from dataclasses import replace

    specs = tuple(replace(spec, log_level="warning") for spec in plan.worker_specs())
    return replace(plan, workers=specs)


def _worker_counts(text: str) -> list[int]:
    try:
        counts = [int(word) for word in text.split(",") if word.strip()]
    except ValueError:
        counts = []
    if not counts or not all(1 <= count <= _MOST_WORKERS for count in counts):
        raise ConfigError(
            f"--workers {text!r}: whole numbers from 1 to {_MOST_WORKERS}, with commas between",
            hint="for example --workers 1,2,4",
        )
    return list(dict.fromkeys(counts))


def _make_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--out {out}: {error.strerror}") from None


def _write(report: Report, lines: list[str], out: Path) -> None:
    from .html import report_page

    texts = (
        "\n".join(lines) + "\n",
        json.dumps(report.document(), indent=1) + "\n",
        report_page(report),
    )
    for name, text in zip(_REPORTS, texts, strict=True):
        try:
            (out / name).write_text(text, encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"--out {out / name}: {error.strerror}") from None
    click.echo(f"wrote {', '.join(str(out / name) for name in _REPORTS)}", err=True)
