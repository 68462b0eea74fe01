"""Decides the launch: settings, checkpoint, machine and support table in, plan out. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kimi_serve.schemas.checkpoint import CheckpointFacts
from kimi_serve.schemas.engine_launch import EngineInstall
from kimi_serve.schemas.hardware import Hardware
from kimi_serve.schemas.plan import LaunchPlan, LoadedSettings
from kimi_serve.schemas.provenance import Resolved
from kimi_serve.schemas.support import SupportTable
from kimi_serve.schemas.worker import WorkerSpec

from ..engines.launch import engine_launch
from ..rules import run_rules, sorted_findings
from ..rules.memory import memory_budget
from .devices import decide_devices
from .image_kernel import decide_image_kernel
from .situation import Situation, look_up
from .worker_memory import worker_memory
from .worker_specs import worker_specs


def resolve(
    loaded: LoadedSettings,
    checkpoint: CheckpointFacts,
    hardware: Hardware,
    support: SupportTable,
    env: Mapping[str, str] | None = None,
    install: EngineInstall | None = None,
) -> LaunchPlan:
    """Decide everything that a launch needs; `install` is what the engine's interpreter has.

    Raises PlanError for what cannot work; what works otherwise than the user may expect is a
    finding of the plan, errors first.
    """
    situation = look_up(loaded, checkpoint, hardware, support, env, install)
    devices = decide_devices(situation)
    workers = worker_specs(situation, devices)
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
        workers=workers,
        findings=sorted_findings((*loaded.findings, *run_rules(situation))),
        launch=engine_launch(situation, devices, install),
        install=install,
        references=loaded.references,
        budget=memory_budget(situation),
        worker_memory_mib=_worker_memory(situation, workers),
        image_kernel=decide_image_kernel(situation),
    )


def _model(situation: Situation) -> Resolved[str]:
    """Decide the name that is served."""
    checkpoint = situation.known_checkpoint
    where = {
        "bundled": "the bundled demo checkpoint",
        "directory": f"the checkpoint in {checkpoint.directory}",
        "hub-cache": f"the cached hub checkpoint in {checkpoint.directory}",
    }[checkpoint.origin]
    given = situation.given("model.served_name")
    if given is not None:
        return Resolved(given.text, str(given.origin), where)
    model = situation.given("model.path")
    if situation.kind != "none" and model is not None:
        # Without a name the engines call a model by its path.
        return Resolved(model.text, str(model.origin), where)
    return Resolved(checkpoint.name, str(situation.loaded.origin("model.path")), where)


def _engine(situation: Situation) -> Resolved[str]:
    source = str(situation.loaded.origin("engine.kind"))
    if situation.kind == "none":
        return Resolved("none", source, "the built-in workers serve")
    install = situation.install
    if situation.settings.engine.version is not None:
        origin = situation.loaded.origin("engine.version")
        reason = f"engine.version is {situation.version} ({origin})"
    elif install is not None and install.version is not None:
        reason = f"the engine's package: {install.python} has {situation.version} installed"
    else:
        reason = f"no engine.version: {situation.version}, the newest that was checked, is assumed"
    return Resolved(situation.kind, source, reason)


def _worker_memory(situation: Situation, workers: Sequence[WorkerSpec]) -> Resolved[int] | None:
    if not workers or not workers[0].memory_bytes:
        return None
    return worker_memory(situation, workers[0].slot_bytes)


def _worker_num(situation: Situation) -> Resolved[int]:
    number = situation.num_workers
    work = "with an image processor of its own"
    reason = f"one process {work}" if number == 1 else f"{number} processes, each {work}"
    return Resolved(number, str(situation.workers_origin), reason)
