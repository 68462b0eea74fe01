"""Command-line options made from the settings table: one option a setting, none written twice."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

import click
from click.core import ParameterSource

from kimi_serve.schemas.fields import SettingField, setting_fields

_BARE: Final = "kimi_serve.launcher.options.bare"


class SettingsCommand(click.Command):
    """A command that takes every setting as an option; its help lists them by section."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        return [*super().get_params(ctx), *_shared_options()]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        format_by_section(self, ctx, formatter)


class SettingsGroup(click.Group):
    """The same for the bare program, which has commands too."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        own = super().get_params(ctx)
        return own if self._is_bare(ctx) else [*own, *_shared_options()]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # Most command lines begin with the command: no setting can stand before it.
        ctx.meta[_BARE] = bool(args) and args[0] in self.commands
        return super().parse_args(ctx, args)

    def _is_bare(self, ctx: click.Context) -> bool:
        return ctx.command is self and bool(ctx.meta.get(_BARE))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_commands(ctx, formatter)
        format_by_section(self, ctx, formatter)


def format_by_section(
    command: click.Command, ctx: click.Context, formatter: click.HelpFormatter
) -> None:
    """Write the options under a heading for each section of the settings."""
    blocks: dict[str, list[tuple[str, str]]] = {}
    for parameter in command.get_params(ctx):
        record = parameter.get_help_record(ctx)
        if record is not None:
            section, _, rest = (parameter.name or "").partition("__")
            blocks.setdefault(section.title() if rest else "Options", []).append(record)
    for heading, records in blocks.items():
        with formatter.section(heading):
            formatter.write_dl(records)


def given_profiles(ctx: click.Context) -> list[Path]:
    """Give the profiles named before and after the command, in order."""
    return [path for level in _levels(ctx) for path in level.params.get("profile") or ()]


def given_flags(ctx: click.Context) -> Mapping[str, object]:
    """Give the settings that stand on the command line, as text or as bool of a flag pair."""
    found: dict[str, object] = {}
    for level in _levels(ctx):
        for field in setting_fields().values():
            if level.get_parameter_source(field.parameter) is ParameterSource.COMMANDLINE:
                found[field.parameter] = level.params[field.parameter]
    return found


def given_set_items(ctx: click.Context) -> list[str]:
    """Give all `--set path=value` items."""
    return [item for level in _levels(ctx) for item in level.params.get("set_items") or ()]


def _levels(ctx: click.Context) -> list[click.Context]:
    return [*([ctx.parent] if ctx.parent else []), ctx]


@cache
def _shared_options() -> list[click.Parameter]:
    """Make them when they are first asked for: `lint` has none of them."""
    return [
        click.Option(
            ["--profile"],
            multiple=True,
            type=click.Path(path_type=Path),
            help="YAML profile; the last of several wins.",
        ),
        click.Option(
            ["--set", "set_items"],
            multiple=True,
            metavar="PATH=VALUE",
            help="Any setting, its value read as YAML.",
        ),
        *(_option(field) for field in setting_fields().values()),
    ]


def _option(field: SettingField) -> click.Option:
    if field.negative_flag is not None:
        spelling = f"{field.flag}/{field.negative_flag}"
        return click.Option(
            [field.parameter, spelling], default=None, help=f"{field.help} [{field.path}]"
        )
    return click.Option(
        [field.parameter, field.flag],
        type=click.UNPROCESSED,
        metavar=_metavar(field),
        help=f"{field.help} [{field.path}]",
    )


def _metavar(field: SettingField) -> str:
    if field.kind == "choice":
        return f"[{'|'.join(field.choices)}]"
    if field.kind == "list":
        return "A,B,..."
    return {"int": "N", "float": "X", "mapping": "JSON", "secret": "KEY"}.get(field.kind, "TEXT")
