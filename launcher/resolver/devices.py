"""Where images are decoded and preprocessed, and why: the two decisions, pure."""

from __future__ import annotations

from dataclasses import dataclass

from kimi_serve.schemas.plan import PlannedDevice
from kimi_serve.schemas.provenance import Resolved

from .situation import FLAG, Situation


@dataclass(frozen=True, slots=True)
class Devices:
    """The devices that will really be used."""

    decode: Resolved[PlannedDevice]
    preprocess: Resolved[PlannedDevice]


def decide_devices(situation: Situation) -> Devices:
    """Decide both devices; they differ only where an engine cannot keep them together."""
    row = situation.row
    if not situation.has_images:
        return _both("cpu", "checkpoint", f"{situation.architecture} takes no images")
    if situation.is_forced and row is not None and row.flag == "honoured":
        return _both("cpu", str(situation.loaded.origin(FLAG)), _forced_reason(situation))
    if not situation.gpu.is_present:
        reason = f"no CUDA device visible: {situation.gpu.reason}"
        return _both("cpu", situation.gpu.source, reason)
    if row is None:
        reason = f"{situation.engine_name} was not checked for {situation.architecture}"
        return _both("unknown", "support table", reason)
    if situation.kind == "none" and not situation.has_gpu_extra:
        reason = "the gpu extra (torch, torchvision) is not installed, so the CUDA device is unused"
        return _both("cpu", "hardware", reason)
    if situation.kind == "none":
        return Devices(
            Resolved(row.decode, "support table", row.source),
            Resolved(row.preprocess, "support table", row.source),
        )
    return Devices(
        Resolved(row.decode, "support table", _decode_reason(situation, row.decode)),
        Resolved(row.preprocess, "support table", _preprocess_reason(situation, row.preprocess)),
    )


def _both(value: PlannedDevice, source: str, reason: str) -> Devices:
    return Devices(Resolved(value, source, reason), Resolved(value, source, reason))


def _forced_reason(situation: Situation) -> str:
    if situation.kind == "none":
        return f"{FLAG} is on: workers start with CUDA_VISIBLE_DEVICES empty"
    return f"{FLAG} is on, and {situation.engine_name} honours it for {situation.architecture}"


def _decode_reason(situation: Situation, device: str) -> str:
    if device == "cpu":
        return _reason(situation, "decodes images", "on the CPU")
    return _reason(situation, "decodes JPEG", "on the GPU, other formats on the CPU", "cuda")


def _preprocess_reason(situation: Situation, device: str) -> str:
    place = "on the GPU" if device == "cuda" else "on the CPU"
    return _reason(situation, "preprocesses images", place, device)


def _reason(situation: Situation, verb: str, place: str, device: str = "cpu") -> str:
    unread = f", whatever {FLAG} says" if situation.is_forced and device == "cuda" else ""
    return f"{situation.engine_name} {verb} for {situation.architecture} {place}{unread}"
