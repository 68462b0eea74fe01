"""Takes secrets out of findings before any format sees them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace

from kimi_serve.schemas.findings import Finding
from kimi_serve.schemas.provenance import Origin

from ..sources.characters import bare, printable, shown
from .secret_words import is_secret_name, login_in, mask
from .source_text import HIDDEN, SourceText

_SHORTEST = 4


def secrets_of(sources: Iterable[SourceText], env: Mapping[str, str]) -> tuple[str, ...]:
    """Give every secret in every spelling in which a message may repeat it, longest first."""
    found: set[str] = set()
    for source in sources:
        for first, last in source.secrets:
            written = source.text[first:last]
            found.update((written, written.strip("'\"[]{} \t\r\n")))
            found.update(piece.strip("'\"") for piece in written.replace(",", " ").split())
    found.update(value for name, value in env.items() if is_secret_name(name) or login_in(value))
    spelt = {form for text in found for form in _spellings(text.strip())}
    spelt -= _HARMLESS
    return tuple(sorted(spelt, key=len, reverse=True))


# What a reference to a secret is made of: words of the schema, not secrets.
_HARMLESS = frozenset({"env:", "file:", "null", "true", "false", "None"})


def _spellings(text: str) -> set[str]:
    forms = {text, repr(text)[1:-1], printable(text), json.dumps(text)[1:-1], bare(text)}
    forms |= {json.dumps(bare(text))[1:-1], shown(text).removesuffix("...")[1:-1], text[:80]}
    return {form for form in forms if len(form) >= _SHORTEST}


def scrub(finding: Finding, secrets: tuple[str, ...]) -> Finding:
    """Give the finding without secrets; a fix that would write one is dropped."""
    fix = finding.fix
    if fix and any(secret in edit.text for edit in fix.edits for secret in secrets):
        fix = None
    return replace(
        finding,
        message=_clean(finding.message, secrets),
        help=_clean(finding.help, secrets) if finding.help else finding.help,
        path=mask(finding.path),
        origin=_without_secret(finding.origin),
        fix=fix,
    )


def _without_secret(origin: Origin) -> Origin:
    """Mask a variable whose name holds a secret; texts are found by the names of files."""
    return replace(origin, name=mask(origin.name)) if origin.kind == "env" else origin


def _clean(text: str, secrets: tuple[str, ...]) -> str:
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    return mask(text)
