"""Whether a GPU is there: what the settings declare, then what the machine shows."""

from __future__ import annotations

from dataclasses import dataclass

from kimi_serve.schemas.hardware import Gpu, Hardware
from kimi_serve.schemas.plan import LoadedSettings


@dataclass(frozen=True, slots=True)
class GpuPresence:
    """Whether a CUDA device is there, who says so, and the memory of the first, if known.

    `is_known` is false where neither settings nor machine were there to say so.
    """

    is_present: bool
    source: str
    reason: str
    total_mib: int | None
    is_known: bool = True


def find_gpu(loaded: LoadedSettings, hardware: Hardware | None) -> GpuPresence:
    """Take the GPUs that the settings declare before those that the machine shows."""
    gpu = loaded.settings.gpu
    gpus = () if hardware is None else hardware.gpus
    total = gpu.total_mib or _probed_total(gpus, gpu.ids)
    if gpu.ids is not None:
        source = str(loaded.origin("gpu.ids"))
        if not gpu.ids:
            return GpuPresence(False, source, "gpu.ids declares none", None)
        return GpuPresence(True, source, "declared by gpu.ids", total)
    if gpu.total_mib is not None and not gpus:
        source = str(loaded.origin("gpu.total_mib"))
        return GpuPresence(True, source, "declared by gpu.total_mib", total)
    if hardware is None:
        # An engine without a GPU is the exception; the built-in workers need none.
        is_engine = loaded.settings.engine.kind != "none"
        return GpuPresence(is_engine, "engine.kind", "nobody looked", None, is_known=False)
    return GpuPresence(bool(gpus), "hardware", hardware.gpu_source, total)


def _probed_total(gpus: tuple[Gpu, ...], ids: tuple[str, ...] | None) -> int | None:
    """Give the memory of the first GPU, or of the first that `ids` names."""
    found = [gpu for gpu in gpus if not ids or _is_named(gpu, ids[0])]
    return found[0].total_mib if found else None


def _is_named(gpu: Gpu, name: str) -> bool:
    return name == str(gpu.index) or (gpu.uuid is not None and gpu.uuid == name)
