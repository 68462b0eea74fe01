"""Plans of one profile for several engines, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kimi_serve.schemas.plan import LaunchPlan

from ..secrets.given import secrets_of_settings
from .engine import command_lines, variable_lines, watch_lines
from .render import decisions_of, finding_lines, plan_json, shown
from .shell import flag_words, on_one_line, variable_word
from .words import columns, show

_NAMES = ("model", "worker_num", "decode_device", "preprocess_device")


def compare_text(
    plans: Mapping[str, LaunchPlan],
    left_out: Mapping[str, Sequence[str]],
    *,
    changed_only: bool = False,
) -> str:
    """Give plans by engine for a reader: what differs in columns, then each command.

    `changed_only` leaves out settings that nobody set.
    """
    settings = _mapping_rows(plans, changed_only)
    blocks: dict[str, list[str]] = {
        "engines": columns([("", *map(_title, plans.values())), *_decision_rows(plans)]),
        "reasons": _reason_lines(plans),
        "settings": columns([("", *plans), *settings]) if settings else [],
        "left out": [
            f"  {engine}: {', '.join(paths)}, which are words of another engine"
            for engine, paths in left_out.items()
            if paths
        ],
    }
    for engine, plan in plans.items():
        blocks[f"{engine}: command"] = command_lines(plan.launch)
        blocks[f"{engine}: variables"] = variable_lines(plan.launch)
        blocks[f"{engine}: supervision"] = watch_lines(plan)
        blocks[f"{engine}: findings"] = list(finding_lines(plan.findings))
    text = "\n\n".join("\n".join([title, *lines]) for title, lines in blocks.items() if lines)
    for plan in plans.values():
        text = secrets_of_settings(plan).hide(text)
    return text


def compare_json(
    plans: Mapping[str, LaunchPlan],
    left_out: Mapping[str, Sequence[str]],
    *,
    changed_only: bool = False,
) -> dict[str, Any]:
    """Give the same as data: the whole plan of each engine, and what settings become."""
    whole = {engine: plan_json(plan, changed_only=changed_only) for engine, plan in plans.items()}
    return {
        "format_version": 1,
        "engines": {
            engine: {"left_out": list(left_out[engine]), "plan": data}
            for engine, data in whole.items()
        },
        "settings": {
            path: dict(zip(plans, words, strict=True))
            for path, *words in _mapping_rows(plans, changed_only)
        },
    }


def _title(plan: LaunchPlan) -> str:
    return f"{plan.engine.value} {plan.engine_version}"


def _decision_rows(plans: Mapping[str, LaunchPlan]) -> list[tuple[str, ...]]:
    rows = [
        (name, *(show(decisions_of(plan)[name].value) for plan in plans.values()))
        for name in _NAMES
    ]
    return [*rows, ("findings", *(str(len(plan.findings)) for plan in plans.values()))]


def _reason_lines(plans: Mapping[str, LaunchPlan]) -> list[str]:
    rows = [
        (name, engine, f"{decisions_of(plan)[name].source}: {decisions_of(plan)[name].reason}")
        for name in _NAMES[1:]
        for engine, plan in plans.items()
    ]
    return columns(rows)


def _mapping_rows(plans: Mapping[str, LaunchPlan], changed_only: bool) -> list[tuple[str, ...]]:
    """Give what each setting becomes, a column for each engine, in the order of the settings."""
    said = {engine: _said(plan) for engine, plan in plans.items()}
    order = [value.path for plan in plans.values() for value in shown(plan, changed_only)]
    paths = [path for path in dict.fromkeys(order) if any(path in words for words in said.values())]
    return [(path, *(words.get(path, "-") for words in said.values())) for path in paths]


def _said(plan: LaunchPlan) -> dict[str, str]:
    words: dict[str, list[str]] = {}
    launch = plan.launch
    for flag in launch.flags if launch else ():
        words.setdefault(flag.path, []).append(" ".join(flag_words(flag, on_one_line)))
    for variable in launch.variables if launch else ():
        if variable.value is not None:
            words.setdefault(variable.path, []).append(variable_word(variable, on_one_line))
    return {path: "; ".join(parts) for path, parts in words.items()}
