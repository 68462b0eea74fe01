"""Decides the launch: settings, checkpoint, machine and support table in, plan out. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from kimi_serve.schemas.checkpoint import CheckpointFacts
from kimi_serve.schemas.hardware import Hardware
from kimi_serve.schemas.plan import LaunchPlan, LoadedSettings
from kimi_serve.schemas.provenance import Resolved
from kimi_serve.schemas.support import SupportTable

from ..rules import run_rules, sorted_findings
from .devices import decide_devices
from .situation import Situation, look_up
from .worker_specs import worker_specs


def resolve(
    loaded: LoadedSettings,
    checkpoint: CheckpointFacts,
    hardware: Hardware,
    support: SupportTable,
    env: Mapping[str, str] | None = None,
) -> LaunchPlan:
    """Decide everything that a launch needs.

    Raises PlanError for what cannot work; what works otherwise than the user may expect is a
    finding of the plan, errors first.
    """
    situation = look_up(loaded, checkpoint, hardware, support, env)
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
        findings=sorted_findings((*loaded.findings, *run_rules(situation))),
    )


def _model(situation: Situation) -> Resolved[str]:
    """Decide the name that is served."""
    checkpoint = situation.known_checkpoint
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
    return Resolved(number, str(situation.workers_origin), reason)
