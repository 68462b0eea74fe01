"""The command `kimi-serve adopt`: a command of an engine in, a profile and findings out."""

from __future__ import annotations

import click

from kimi_serve.schemas.errors import ConfigError

from ..lint.formats import FORMAT_NAMES


@click.command(
    context_settings={"allow_interspersed_args": False},
    help="Print the profile that says what an engine's command says, and lint it. COMMAND follows "
    "`--`; without it a shell script, a docker run line, a compose service or a Kubernetes "
    "container is read from standard input. Nothing is started.",
)
@click.argument("words", nargs=-1, metavar="-- COMMAND...", type=click.UNPROCESSED)
@click.option("--env-file", "env_files", multiple=True, help="KEY=VALUE lines that it inherits.")
@click.option("-o", "--output", default="-", help="Where the profile goes; - is stdout.")
@click.option(
    "--format",
    "format",
    type=click.Choice(FORMAT_NAMES),
    default="full",
    show_default=True,
    help="How findings are written, to stderr.",
)
def adopt(words: tuple[str, ...], env_files: tuple[str, ...], output: str, format: str) -> int:
    """Run; the exit code is 1 when a finding is an error, 2 when there is no engine command."""
    if words == ("-",):
        words = ()
    from .session import Options, run

    try:
        return run(Options(words, env_files, output, format))
    except RecursionError:
        raise ConfigError("the text is nested too deeply") from None
