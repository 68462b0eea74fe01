"""The command `schema`."""

from __future__ import annotations

import json

import click


@click.command(help="Print the JSON Schema of profiles, for editors and validators.")
def schema() -> None:
    """Print the schema."""
    from .report.profile_schema import profile_schema

    click.echo(json.dumps(profile_schema(), indent=2))
