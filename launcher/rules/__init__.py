"""The rules about settings that are read and merged: one list, for lint, plan and serve.

What a source can say about its own text, it says while it is read (`launcher.sources`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from kimi_serve.schemas.findings import SEVERITIES, Finding
from kimi_serve.schemas.versions import version_key

from ..resolver.situation import Situation
from . import (
    budget,
    combination,
    config_file,
    dependence,
    effect,
    engine_names,
    engine_numbers,
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
    *engine_numbers.RULES,
    *engine_names.RULES,
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

# What one release of an engine does: of another one it is not certain.
_OF_A_RELEASE: frozenset[Rule] = frozenset(
    (
        *names.RULES,
        *config_file.RULES,
        values.flag_values,
        values.engine_variables,
        values.odd_values,
        combination.several_workers,
        combination.sglang_pairs,
        combination.remote_code,
        combination.vllm_pairs,
    )
)


def run_rules(situation: Situation) -> tuple[Finding, ...]:
    """Give all that the rules find: errors first, then by position, each thing once.

    An error stops a launch, so it must be certain: of a release that nobody read, what the nearest
    one refuses is a warning.
    """
    return sorted_findings(
        finding if is_read(situation) or rule not in _OF_A_RELEASE else _uncertain(finding)
        for rule in ALL_RULES
        for finding in rule(situation)
    )


def is_read(situation: Situation) -> bool:
    """Tell whether the tables are of the release that will run."""
    table = situation.table
    return table is None or version_key(table.version) == version_key(situation.version)


def _uncertain(finding: Finding) -> Finding:
    return finding if finding.severity != "error" else replace(finding, severity="warning")


def sorted_findings(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Put errors before warnings before notes, each by position."""
    return tuple(sorted(dict.fromkeys(findings), key=_order))


def _order(finding: Finding) -> tuple[int, int, str, int, int, str]:
    origin = finding.origin
    return (
        SEVERITIES.index(finding.severity),
        int(origin.kind == "default"),
        origin.name,
        origin.line or 0,
        origin.column or 0,
        finding.rule,
    )
