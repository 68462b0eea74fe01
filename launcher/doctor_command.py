"""The `doctor` command: what this machine and this installation offer, without any setting."""

from __future__ import annotations

import json
import os

import click


@click.command(
    help="Say what this machine and this installation offer: cores, memory, limits, GPUs, the "
    "image kernel and its self-test, versions. Exit code 0, or 1 when something that is installed "
    "is broken."
)
@click.option("--json", "as_json", is_flag=True, help="The same for programs.")
def doctor(as_json: bool) -> int:
    """Look and print."""
    from .machine.host import examine
    from .report.host import host_json, host_text

    host = examine(dict(os.environ))
    click.echo(json.dumps(host_json(host), indent=2) if as_json else host_text(host))
    return 1 if host.faults else 0
