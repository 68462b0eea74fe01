"""The rules about settings that are read and merged: one list, for lint, plan and serve.

What a source can say about its own text, it says while it is read (`launcher.sources`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from kimi_serve.schemas.findings import Finding

from ..resolver.situation import Situation
from . import (
    budget,
    combination,
    config_file,
    dependence,
    effect,
    exposure,
    fleet_size,
    front,
    knowledge,
    media,
    names,
    process,
    reach,
    secrets,
    shared_memory,
    values,
)

Rule = Callable[[Situation], Iterator[Finding]]

ALL_RULES: tuple[Rule, ...] = (
    *names.RULES,
    *config_file.RULES,
    *values.RULES,
    *knowledge.RULES,
    *effect.RULES,
    *dependence.RULES,
    *combination.RULES,
    *reach.RULES,
    *budget.RULES,
    *fleet_size.RULES,
    *front.RULES,
    *shared_memory.RULES,
    *exposure.RULES,
    *media.RULES,
    *secrets.RULES,
    *process.RULES,
)

_SEVERITIES = ("error", "warning", "info")


def run_rules(situation: Situation) -> tuple[Finding, ...]:
    """Give all that the rules find: errors first, then by position, each thing once."""
    return sorted_findings(finding for rule in ALL_RULES for finding in rule(situation))


def sorted_findings(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Put errors before warnings before notes, each by position."""
    return tuple(sorted(dict.fromkeys(findings), key=_order))


def _order(finding: Finding) -> tuple[int, int, str, int, int, str]:
    origin = finding.origin
    return (
        _SEVERITIES.index(finding.severity),
        int(origin.kind == "default"),
        origin.name,
        origin.line or 0,
        origin.column or 0,
        finding.rule,
    )
