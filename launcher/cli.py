"""The program: runs one command line, the one place that turns errors into exit codes.

Light: the commands, and what they need, are loaded when it runs.
"""

from __future__ import annotations

import gc
import io
import sys
from typing import TYPE_CHECKING, NoReturn, cast

from kimi_serve.schemas.errors import ConfigError, KimiServeError

from . import first_process

if TYPE_CHECKING:
    from kimi_serve.schemas.findings import Finding

# Loading makes some 100 000 objects that stay; by default every 700 of them are looked through.
_SHORT_RUNS = ("lint", "rule", "schema")
_COLLECT_EVERY = 200_000


def main() -> NoReturn:
    """Run the program and exit with its code."""
    argv = sys.argv[1:]
    first_process.begin(argv, has_command)
    is_short = bool(argv) and argv[0] in _SHORT_RUNS
    if is_short:
        gc.set_threshold(_COLLECT_EVERY)
    _escape_the_rest()
    code = run(argv)
    if is_short:
        gc.freeze()  # nothing is left that the collection at exit could find
    sys.exit(code)


def _escape_the_rest() -> None:
    """Let standard output escape what its encoding has no way to write, as standard error does."""
    stdout = cast("io.TextIOWrapper | None", sys.stdout)  # None when it was closed at the start
    if isinstance(stdout, io.TextIOWrapper) and stdout.errors == "strict":
        stdout.reconfigure(errors="backslashreplace")


def has_command(argv: list[str]) -> bool:
    """Say whether a command follows the options; which of them take a value click alone knows."""
    import click

    from .commands import cli

    try:
        _, words, _ = cli.make_parser(click.Context(cli)).parse_args(argv)
    except click.ClickException:
        return True  # nothing will be served
    return bool(words)


def run(argv: list[str]) -> int:
    """Run one command line; gives the exit code, every error is one message on stderr."""
    import click

    from .commands import cli
    from .lint.failure import report_failure
    from .sources.flags import check_argv

    try:
        odd = check_argv(argv)
        if odd:
            raise ConfigError("the command line has characters that look like others", findings=odd)
        result = cli.main(argv, prog_name="kimi-serve", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except click.ClickException as error:
        from .secrets.known import Known
        from .secrets.shapes import parts_of

        # A word that lost its option may be a setting with its secret.
        known = Known(part for word in argv for part in parts_of(word))
        text = io.StringIO()
        error.show(file=text)
        click.echo(known.hide(text.getvalue()), err=True, nl=False)
        report_failure(argv, known.hide(error.format_message()))
        return 2
    except click.Abort:
        return 130
    except BrokenPipeError:
        from .lint.output import abandon_stdout

        abandon_stdout()  # nobody reads any more
        return 141
    except KimiServeError as error:
        from .secrets.findings import without_secrets
        from .secrets.known import Known

        shown = without_secrets(error, Known())
        _show(shown)
        report_failure(argv, shown.message, _findings(shown))
        return error.exit_code


def _show(error: KimiServeError) -> None:
    import click

    for finding in _findings(error):
        click.echo(str(finding), err=True)
        if finding.help:
            click.echo(f"  help: {finding.help}", err=True)
    click.echo(f"kimi-serve: error: {error.message}", err=True)
    if error.hint:
        click.echo(f"  help: {error.hint}", err=True)


def _findings(error: KimiServeError) -> tuple[Finding, ...]:
    return error.findings if isinstance(error, ConfigError) else ()
