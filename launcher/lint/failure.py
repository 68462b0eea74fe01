"""What lint prints when it cannot even begin: a machine format is a valid document all the same.

Light: read on every failed command line, and knows the options only by their spelling.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ..sources.characters import printable

if TYPE_CHECKING:
    from .report import Report

_DOCUMENTS = ("json", "sarif", "junit", "github")


def report_failure(argv: Sequence[str], message: str) -> None:
    """Write the error as a document of every machine format that a lint command line asks for."""
    if not _is_lint(argv):
        return
    formats = list(_values(argv, ("--format",)))
    outputs = list(_values(argv, ("-o", "--output")))
    if not formats:
        formats = [os.environ.get("KIMI_SERVE_LINT_FORMAT", "")]
    from .report import Report

    report = Report(errors=(printable(message),), exit_code=2)
    for index, format in enumerate(formats):
        if format in _DOCUMENTS:
            _write(format, report, outputs[index] if index < len(outputs) else "-")


def _is_lint(argv: Sequence[str]) -> bool:
    return "lint" in argv


def _values(argv: Sequence[str], names: tuple[str, ...]) -> Iterator[str]:
    for word, following in zip(argv, [*argv[1:], ""], strict=True):
        if word in names:
            yield following
        elif word.startswith("--") and word.partition("=")[0] in names and "=" in word:
            yield word.partition("=")[2]
        elif word.startswith("-o") and "-o" in names and len(word) > 2:
            yield word[2:]


def _write(format: str, report: Report, output: str) -> None:
    from .formats import render
    from .output import write_output

    try:
        write_output(render(format, report), output)
    except (OSError, ValueError):
        return  # the error itself is on stderr already
