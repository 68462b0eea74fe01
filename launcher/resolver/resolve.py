"""Decides the launch: settings, checkpoint, machine and support table in, plan out. Pure."""

from __future__ import annotations

from itertools import chain

from kimi_serve.schemas.checkpoint import CheckpointFacts
from kimi_serve.schemas.findings import Finding
from kimi_serve.schemas.hardware import Hardware
from kimi_serve.schemas.plan import LaunchPlan, LoadedSettings
from kimi_serve.schemas.provenance import Resolved
from kimi_serve.schemas.support import SupportTable

from .budget import budget_findings
from .checks import checkpoint_findings, flag_findings, unused_findings, version_findings
from .devices import Devices, decide_devices
from .situation import WORKER_NUM, Situation, look_up
from .worker_specs import worker_specs

_SEVERITIES = ("error", "warning", "info")


def resolve(
    loaded: LoadedSettings, checkpoint: CheckpointFacts, hardware: Hardware, support: SupportTable
) -> LaunchPlan:
    """Decide everything that a launch needs.

    Raises PlanError for what cannot work; what works otherwise than the user may expect is a
    finding of the plan, errors first.
    """
    situation = look_up(loaded, checkpoint, hardware, support)
    devices = decide_devices(situation)
    return LaunchPlan(
        settings=loaded.settings,
        values=loaded.values,
        checkpoint=checkpoint,
        hardware=hardware,
        model=_model(situation),
        engine=_engine(situation),
        engine_version=None if situation.kind == "none" else situation.version,
        worker_num=_worker_num(situation),
        decode_device=devices.decode,
        preprocess_device=devices.preprocess,
        workers=worker_specs(situation, devices),
        findings=_findings(situation, devices),
    )


def _findings(situation: Situation, devices: Devices) -> tuple[Finding, ...]:
    found = chain(
        situation.loaded.findings,
        checkpoint_findings(situation),
        version_findings(situation),
        flag_findings(situation),
        unused_findings(situation),
        budget_findings(situation, devices),
    )
    return tuple(sorted(found, key=lambda finding: _SEVERITIES.index(finding.severity)))


def _model(situation: Situation) -> Resolved[str]:
    """Decide the name that is served."""
    checkpoint = situation.checkpoint
    where = {
        "bundled": "the bundled demo checkpoint",
        "directory": f"the checkpoint in {checkpoint.directory}",
        "hub-cache": f"the cached hub checkpoint in {checkpoint.directory}",
    }[checkpoint.origin]
    served = situation.settings.model.served_name
    path = "model.path" if served is None else "model.served_name"
    return Resolved(served or checkpoint.name, str(situation.loaded.origin(path)), where)


def _engine(situation: Situation) -> Resolved[str]:
    source = str(situation.loaded.origin("engine.kind"))
    if situation.kind == "none":
        return Resolved("none", source, "the built-in workers serve")
    if situation.settings.engine.version is None:
        reason = f"no engine.version: {situation.version}, the newest that was checked, is assumed"
    else:
        origin = situation.loaded.origin("engine.version")
        reason = f"engine.version is {situation.version} ({origin})"
    return Resolved(situation.kind, source, reason)


def _worker_num(situation: Situation) -> Resolved[int]:
    number = situation.num_workers
    work = "with an image processor of its own"
    reason = f"one process {work}" if number == 1 else f"{number} processes, each {work}"
    return Resolved(number, str(situation.loaded.origin(WORKER_NUM)), reason)
