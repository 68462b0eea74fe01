"""A plan as text, as JSON and as the first lines of the log. Pure; no secret is in any of them."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from kimi_serve.schemas.findings import Finding
from kimi_serve.schemas.plan import LaunchPlan, SettingValue
from kimi_serve.schemas.provenance import DEFAULT, Resolved
from kimi_serve.schemas.worker import WorkerSpec

from ..budget.sentences import summary
from ..secrets.given import secrets_of_settings
from .budget import Paper, budget_json, budget_lines
from .engine import command_lines, launch_json, origin_json, variable_lines, watch_lines
from .redact import hide_in, redacted
from .words import columns, gpu_rows, show

FORMAT_VERSION = 1


_LEVELS = {"error": logging.ERROR, "warning": logging.WARNING, "info": logging.INFO}


def plan_text(plan: LaunchPlan, *, changed_only: bool = False, paper: Paper | None = None) -> str:
    """Give the plan for a reader; `changed_only` leaves out settings that nobody set."""
    blocks = {
        "settings": _setting_lines(plan, changed_only),
        "launch": _decision_lines(plan, ("model", "engine", "worker_num", "worker_memory_mib")),
        "devices": _decision_lines(plan, ("decode_device", "preprocess_device", "image_kernel")),
        "checkpoint": _checkpoint_lines(plan),
        "hardware": _hardware_lines(plan),
        "memory": budget_lines(plan.budget, paper),
        "workers": _worker_lines(plan.worker_specs()),
        "command": command_lines(plan.launch),
        "variables": variable_lines(plan.launch),
        "supervision": watch_lines(plan),
        "findings": list(finding_lines(plan.findings)),
    }
    text = "\n\n".join("\n".join([title, *lines]) for title, lines in blocks.items() if lines)
    return secrets_of_settings(plan).hide(text)


def plan_json(plan: LaunchPlan, *, changed_only: bool = False) -> dict[str, Any]:
    """Give the plan as JSON-ready data; `format_version` changes when a reader would break."""
    document = {
        "format_version": FORMAT_VERSION,
        "settings": [_setting_json(value) for value in shown(plan, changed_only)],
        "decisions": {name: asdict(decision) for name, decision in decisions_of(plan).items()},
        "engine_version": plan.engine_version,
        "checkpoint": asdict(plan.checkpoint),
        "hardware": asdict(plan.hardware),
        "budget": budget_json(plan.budget),
        "workers": [asdict(spec) | {"env": dict(spec.env)} for spec in plan.worker_specs()],
        "launch": launch_json(plan),
        "findings": [_finding_json(finding) for finding in plan.findings],
    }
    plain: dict[str, Any] = hide_in(document, secrets_of_settings(plan))
    return plain


def log_lines(plan: LaunchPlan) -> list[tuple[int, str]]:
    """Give what is logged before anything is started, with levels: decisions, then findings."""
    decisions = [
        f"{name.replace('_', ' ')}: {show(decision.value)} ({decision.source}): {decision.reason}"
        for name, decision in decisions_of(plan).items()
    ]
    if plan.budget is not None:
        decisions.append(f"memory: {summary(plan.budget)}")
    settings = [
        f"{value.path} = {show(value.value)} ({value.origin})" for value in shown(plan, True)
    ]
    lines = [(logging.INFO, line) for line in decisions + settings] + [
        (_LEVELS[finding.severity], f"{finding}{f'; {finding.help}' if finding.help else ''}")
        for finding in plan.findings
    ]
    known = secrets_of_settings(plan)
    return [(level, known.hide(line)) for level, line in lines]


def decisions_of(plan: LaunchPlan) -> dict[str, Resolved[Any]]:
    """Give what was decided, by name."""
    others: dict[str, Resolved[Any] | None] = {
        "image_kernel": plan.image_kernel,
        "worker_memory_mib": plan.worker_memory_mib,
    }
    decisions: dict[str, Resolved[Any]] = {
        "model": plan.model,
        "engine": plan.engine,
        "worker_num": plan.worker_num,
        "decode_device": plan.decode_device,
        "preprocess_device": plan.preprocess_device,
    }
    return decisions | {name: each for name, each in others.items() if each is not None}


def shown(plan: LaunchPlan, changed_only: bool) -> tuple[SettingValue, ...]:
    """Give the settings, secrets as "***"; `changed_only` leaves out those that nobody set."""
    return tuple(
        value
        for value in redacted(plan.values)
        if not changed_only or value.origin != DEFAULT or value.overrode
    )


def _setting_lines(plan: LaunchPlan, changed_only: bool) -> list[str]:
    rows = [
        (value.path, show(value.value), f"{value.origin}{_over(value)}")
        for value in shown(plan, changed_only)
    ]
    return columns(rows) or ["  every setting has its default"]


def _over(value: SettingValue) -> str:
    """Say what was overridden; the built-in default is no news."""
    old = [f"{show(old)} ({origin})" for origin, old in value.overrode if origin != DEFAULT]
    return f", over {', over '.join(old)}" if old else ""


def _decision_lines(plan: LaunchPlan, names: Sequence[str]) -> list[str]:
    decisions = decisions_of(plan)
    return columns(
        [
            (
                name,
                show(decisions[name].value),
                f"{decisions[name].source}: {decisions[name].reason}",
            )
            for name in names
            if name in decisions
        ]
    )


def _checkpoint_lines(plan: LaunchPlan) -> list[str]:
    facts = plan.checkpoint
    rows = [
        ("directory", f"{facts.directory} ({facts.origin})"),
        ("architectures", ", ".join(facts.architectures) or "none named"),
        ("model_type", facts.model_type or "none named"),
        ("tokenizer", f"{facts.tokenizer_kind or 'none'} in {facts.tokenizer_directory}"),
        ("placeholder_id", show(facts.placeholder_id)),
    ]
    resize = facts.resize
    if resize is not None:
        limits = (
            f"{resize.in_patch_limit} patches of {resize.patch_size} px, "
            f"{resize.patch_limit_on_one_side} a side, merge {resize.merge_kernel_size}"
        )
        rows.append(("image limits", f"{limits} ({facts.resize_source})"))
    return columns(rows)


def _hardware_lines(plan: LaunchPlan) -> list[str]:
    hardware = plan.hardware
    rows = [
        ("cpus", f"{hardware.cpus:g}"),
        ("memory", f"{hardware.memory_mib} MiB"),
        *gpu_rows(hardware),
    ]
    return columns(rows)


def _worker_lines(workers: Sequence[WorkerSpec]) -> list[str]:
    if not workers:
        return []
    spec = workers[0]
    arena = spec.slots * spec.slot_bytes
    rows = [
        ("count", str(len(workers))),
        ("devices", f"decode {spec.decode_device}, preprocess {spec.preprocess_device}"),
        ("tokenizer", "none" if spec.tokenizer is None else spec.tokenizer.kind),
        ("arena", f"{spec.slots} slots x {spec.slot_bytes} bytes = {arena} bytes a worker at most"),
    ]
    rows += [("env", f"{name}={shlex.quote(text)}") for name, text in spec.env]
    return columns(rows)


def finding_lines(findings: Sequence[Finding]) -> Iterator[str]:
    """Give findings with what to do about them."""
    for finding in findings:
        yield f"  {finding}"
        if finding.help:
            yield f"    help: {finding.help}"


def _setting_json(value: SettingValue) -> dict[str, Any]:
    return {
        "path": value.path,
        "value": value.value,
        "origin": origin_json(value.origin),
        "overrode": [
            {"value": old, "origin": origin_json(origin)} for origin, old in value.overrode
        ],
    }


def _finding_json(finding: Finding) -> dict[str, Any]:
    return asdict(finding) | {
        "origin": origin_json(finding.origin),
        "related": [origin_json(origin) for origin in finding.related],
    }
