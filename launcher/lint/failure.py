"""What lint prints when it cannot even begin: a machine format is a valid document all the same.

Light: read on every failed command line, and knows the options only by their spelling.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kimi_serve.schemas.findings import Finding
from kimi_serve.schemas.vocabulary import LINT_FORMAT

from ..sources.characters import is_dash, printable

if TYPE_CHECKING:
    from .report import Report, Reported

_DOCUMENTS = ("json", "sarif", "junit", "github")
_PROFILES = (".yaml", ".yml")


def report_failure(argv: Sequence[str], message: str, findings: Sequence[Finding] = ()) -> None:
    """Write the error as a document of every machine format that a lint command line asks for.

    What cannot go where it should goes to standard output, if nothing else does.
    """
    if "lint" not in argv:
        return
    words = argv[: argv.index("--")] if "--" in argv else argv
    formats = [word.casefold() for word in _values(words, "format")]
    outputs = list(_values(words, "output"))
    if not formats:
        formats = [os.environ.get(LINT_FORMAT, "").strip()]
    from .report import Report

    profile = _first_profile(words)
    reported = tuple(_reported(finding, profile) for finding in findings)
    report = Report((), reported, errors=(printable(message),), exit_code=2)
    pairs = [
        (format, outputs[index] if index < len(outputs) else "-")
        for index, format in enumerate(formats)
        if format in _DOCUMENTS
    ]
    # Two documents in one stream are none: the first that may have it gets it.
    for_stdout = [pair for pair in pairs if pair[1] in ("-", "")]
    pairs = [pair for pair in pairs if pair not in for_stdout[1:]]
    lost = [format for format, output in pairs if not _write(format, report, output)]
    is_free = "-" not in (output for _, output in pairs) and len(formats) == len(pairs)
    if lost and is_free:
        _write(lost[0], report, "-")


def _values(words: Sequence[str], option: str) -> Iterator[str]:
    """Give the values of an option, also where its dashes are none; "-" for one that is missing."""
    letter = option[0] if option == "output" else ""
    for word, following in zip(words, [*words[1:], "-"], strict=True):
        start = next((i for i, char in enumerate(word) if char != "-" and not is_dash(char)), 0)
        name, equals, value = word[start:].partition("=")
        if start and name == option:
            yield value if equals else following
        elif start == 1 and letter and name.startswith(letter):
            yield word[start + 1 :] or following


def _first_profile(words: Sequence[str]) -> str:
    """Give the file that a finding without a place is shown at: some formats insist on one."""
    files = (word for word in words if word.endswith(_PROFILES) and os.path.isfile(word))
    return printable(next(files, "<command line>"))


def _reported(finding: Finding, profile: str) -> Reported:
    from .baseline import fingerprint
    from .report import Reported

    return Reported(finding, profile, fingerprint(finding, profile, None))


def _write(format: str, report: Report, output: str) -> bool:
    """Write one document; False where that fails, or would overwrite what is no report.

    A name that `-o` took from the files by mistake is such a case.
    """
    from .formats import render
    from .output import write_output

    if output.endswith(_PROFILES) and os.path.exists(output):
        return False
    try:
        write_output(render(format, report), output or "-")
    except (OSError, ValueError):
        return False  # the error itself is on stderr already
    return True
