"""Which findings are reported, and which of them fail the run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from kimi_serve.schemas.findings import SEVERITIES, Finding
from kimi_serve.schemas.rules import RULES

FailOn = Literal["error", "warning", "info", "never"]
_UNREAD = ("KS001", "KS002", "KS003", "KS004")


def parse_codes(texts: Iterable[str]) -> tuple[str, ...]:
    """Split `KS1,KS201` into ids and prefixes; ValueError for one that is neither."""
    codes = [code.strip().upper() for text in texts for code in text.split(",")]
    for code in codes:
        if not code or not any(rule.startswith(code) for rule in RULES):
            from difflib import get_close_matches

            close = get_close_matches(code[:20], RULES, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise ValueError(f"there is no rule or family {code[:20]!r}{hint}")
    return tuple(codes)


def select(
    findings: Iterable[Finding], selected: Sequence[str] = (), ignored: Sequence[str] = ()
) -> tuple[Finding, ...]:
    """Keep what is selected (by default all but notes) and not ignored.

    That a file cannot be read as a profile stays: no rule was asked about it then.
    """
    return tuple(
        finding
        for finding in findings
        if _is_unread(finding)
        or (
            not finding.rule.startswith(tuple(ignored))
            and (
                finding.rule.startswith(tuple(selected)) if selected else finding.severity != "info"
            )
        )
    )


def _is_unread(finding: Finding) -> bool:
    """Tell whether a finding is why a file, or a part of it, counts for nothing."""
    if finding.severity != "error":
        return False
    # A character that ends the reading has no setting, one in a key or a value has.
    is_character = finding.rule == "KS006" and not finding.path
    return finding.rule in _UNREAD or (is_character and finding.origin.kind == "profile")


def fails(findings: Iterable[Finding], fail_on: FailOn) -> bool:
    """Say whether any finding is as severe as `fail_on`, or more."""
    if fail_on == "never":
        return False
    counted = SEVERITIES[: SEVERITIES.index(fail_on) + 1]
    return any(finding.severity in counted for finding in findings)
