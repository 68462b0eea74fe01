"""Makes the inputs of the resolver: settings with origins, checkpoint facts, machines."""

from __future__ import annotations

import json
from collections.abc import Mapping
from operator import attrgetter
from typing import Any

from kimi_serve.launcher.resolver.resolve import resolve
from kimi_serve.schemas.checkpoint import CheckpointFacts
from kimi_serve.schemas.engine_launch import EngineInstall
from kimi_serve.schemas.fields import setting_fields
from kimi_serve.schemas.findings import Finding
from kimi_serve.schemas.hardware import Gpu, Hardware
from kimi_serve.schemas.plan import LaunchPlan, LoadedSettings, SettingValue
from kimi_serve.schemas.provenance import DEFAULT, Origin
from kimi_serve.schemas.settings import Settings
from kimi_serve.schemas.support import load_support
from kimi_serve.schemas.worker import ResizeConfig

K25 = "KimiK25ForConditionalGeneration"
K3 = "KimiK3ForConditionalGeneration"
QWEN = "Qwen3VLForConditionalGeneration"
TEXT_ONLY = "DeepseekV3ForCausalLM"
UNKNOWN = "FutureForConditionalGeneration"

RESIZE = ResizeConfig(16384, 512, 14, 2, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
NO_GPU = Hardware(8.0, 32768, (), "no device files /dev/nvidia[0-9]*")
ONE_GPU = Hardware(8.0, 32768, (Gpu(0),), "1 device file /dev/nvidia[0-9]*")


def make_loaded(
    given: Mapping[str, Any] | None = None,
    *,
    origins: Mapping[str, Origin] | None = None,
    findings: tuple[Finding, ...] = (),
    overrode: Mapping[str, tuple[tuple[Origin, Any], ...]] | None = None,
) -> LoadedSettings:
    """Settings as if each of `given` (by path) stood on a line of its own in prod.yaml.

    model.path is given unless `given` says otherwise.
    """
    given = {"model.path": "./model"} | dict(given or {})
    tree: dict[str, Any] = {}
    for path, value in given.items():
        *names, name = path.split(".")
        section = tree
        for part in names:
            section = section.setdefault(part, {})
        section[name] = value
    lines = {path: Origin("profile", "prod.yaml", line, 3) for line, path in enumerate(given, 1)}
    origins = lines | dict(origins or {})
    settings = Settings.model_validate(tree)
    values = tuple(
        SettingValue(
            path,
            _plain(field.is_secret, attrgetter(path)(settings)),
            origins.get(path, DEFAULT),
            (overrode or {}).get(path, ()),
        )
        for path, field in setting_fields().items()
    )
    return LoadedSettings(settings, values, findings)


def _plain(is_secret: bool, value: Any) -> Any:
    if is_secret and value is not None:
        return "***"
    return json.loads(json.dumps(value))


def make_checkpoint(architecture: str = K25, **changes: Any) -> CheckpointFacts:
    """Facts of a checkpoint directory; only Kimi's have parameters that we read."""
    has_vision = architecture != TEXT_ONLY
    facts: dict[str, Any] = {
        "directory": "/models/m",
        "origin": "directory",
        "name": "m",
        "architectures": (architecture,),
        "model_type": "m",
        "placeholder_id": 163605,
        "resize": RESIZE if architecture in (K25, K3) else None,
        "resize_source": "preprocessor_config.json media_proc_cfg",
        "disagreements": (),
        "tokenizer_directory": "/models/m",
        "tokenizer_kind": "tokenizer.json",
        "has_vision": has_vision,
    }
    return CheckpointFacts(**(facts | changes))


def make_plan(
    given: Mapping[str, Any] | None = None,
    *,
    checkpoint: CheckpointFacts | None = None,
    hardware: Hardware = NO_GPU,
    env: Mapping[str, str] | None = None,
    install: EngineInstall | None = None,
    **loaded: Any,
) -> LaunchPlan:
    """Resolve with the packaged support table."""
    return resolve(
        make_loaded(given, **loaded),
        checkpoint or make_checkpoint(),
        hardware,
        load_support(),
        env,
        install,
    )


def rules(plan: LaunchPlan) -> list[str]:
    """The rule ids of a plan's findings, sorted."""
    return sorted(finding.rule for finding in plan.findings)


def only(plan: LaunchPlan, rule: str) -> Finding:
    """The one finding of this rule."""
    (finding,) = (finding for finding in plan.findings if finding.rule == rule)
    return finding
