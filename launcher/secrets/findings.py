"""Takes secrets out of findings, and of errors that carry findings."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from kimi_serve.schemas.errors import ConfigError, KimiServeError
from kimi_serve.schemas.findings import Finding
from kimi_serve.schemas.provenance import Origin

from .known import Known

Error = TypeVar("Error", bound=KimiServeError)


def without_secrets(error: Error, known: Known) -> Error:
    """Cover secrets in all that an error says; gives the same error."""
    error.message = known.hide(error.message)
    error.hint = known.hide(error.hint) if error.hint else error.hint
    error.args = (error.message,)
    if isinstance(error, ConfigError):
        error.findings = tuple(scrub(finding, known) for finding in error.findings)
    return error


def scrub(finding: Finding, known: Known) -> Finding:
    """Give the finding without secrets; a fix that would write one is dropped."""
    fix = finding.fix
    if fix and any(known.hide(edit.text) != edit.text for edit in fix.edits):
        fix = None
    return replace(
        finding,
        message=known.hide(finding.message),
        help=known.hide(finding.help) if finding.help else finding.help,
        path=known.hide(finding.path),
        origin=_without_secret(finding.origin, known),
        related=tuple(_without_secret(other, known) for other in finding.related),
        fix=fix,
    )


def _without_secret(origin: Origin, known: Known) -> Origin:
    """Cover a variable whose name holds a secret; texts are found by the names of files."""
    is_file = origin.kind == "profile" or origin.line is not None
    return origin if is_file else replace(origin, name=known.hide(origin.name))
