"""Whether a GPU is there: what the settings declare, then what the machine shows."""

from __future__ import annotations

from dataclasses import dataclass

from kimi_serve.schemas.engine_names import VISIBLE
from kimi_serve.schemas.hardware import Gpu, Hardware
from kimi_serve.schemas.plan import LoadedSettings

from ..machine.visible_gpus import visible_gpus
from .engine_view import ENV, REFERENCE


@dataclass(frozen=True, slots=True)
class GpuPresence:
    """Whether a CUDA device is there, who says so, and the memory of the first, if known.

    `is_known` is false where neither settings nor machine were there to say so. `gpus` are the
    devices that were found, in the order in which the launch counts them.
    """

    is_present: bool
    source: str
    reason: str
    total_mib: int | None
    is_known: bool = True
    gpus: tuple[Gpu, ...] = ()


def find_gpu(loaded: LoadedSettings, hardware: Hardware | None) -> GpuPresence:
    """Take the GPUs that the settings declare before those that the machine shows."""
    chosen = _chosen(loaded)
    seen = () if hardware is None else _seen(hardware, chosen)
    if chosen is not None and _hides_all(chosen, seen, hardware):
        source = str(loaded.entry(ENV, VISIBLE).value)
        return GpuPresence(False, source, f"{VISIBLE}={chosen!r} leaves none", None)
    return _declared_or_found(loaded, seen, hardware)


def _declared_or_found(
    loaded: LoadedSettings, seen: tuple[Gpu, ...], hardware: Hardware | None
) -> GpuPresence:
    gpu = loaded.settings.gpu
    gpus = seen if gpu.ids is None else _named(seen, gpu.ids, hardware)
    total = gpu.total_mib or (gpus[0].total_mib if gpus else None)
    if gpu.ids is not None:
        source = str(loaded.origin("gpu.ids"))
        if not gpu.ids:
            return GpuPresence(False, source, "gpu.ids declares none", None)
        return GpuPresence(True, source, "declared by gpu.ids", total, gpus=gpus)
    if gpu.total_mib is not None and not gpus:
        source = str(loaded.origin("gpu.total_mib"))
        return GpuPresence(True, source, "declared by gpu.total_mib", total)
    if hardware is None:
        # An engine without a GPU is the exception; the built-in workers need none.
        is_engine = loaded.settings.engine.kind != "none"
        return GpuPresence(is_engine, "engine.kind", "nobody looked", None, is_known=False)
    return GpuPresence(bool(gpus), "hardware", hardware.gpu_source, total, gpus=gpus)


def _chosen(loaded: LoadedSettings) -> str | None:
    """Give what engine.env alone hides from the engine; the launcher's own is in the hardware."""
    engine = loaded.settings.engine
    text = engine.env.get(VISIBLE) if engine.kind != "none" else None
    return None if text is None or REFERENCE in text else text


def _hides_all(chosen: str, seen: tuple[Gpu, ...], hardware: Hardware | None) -> bool:
    """Whether no GPU is left; a number may be right on a machine that nobody looked at."""
    if chosen.split(",")[0].strip() in ("", "-1"):
        return True
    return not seen and hardware is not None and bool(hardware.all_gpus or hardware.gpus)


def _seen(hardware: Hardware, chosen: str | None) -> tuple[Gpu, ...]:
    if chosen is None:
        return hardware.gpus
    whole = hardware.gpus if hardware.all_gpus is None else hardware.all_gpus
    return visible_gpus(whole, chosen)


def _named(
    seen: tuple[Gpu, ...], ids: tuple[str, ...], hardware: Hardware | None
) -> tuple[Gpu, ...]:
    """Give the GPUs that `ids` names, also hidden ones and slices; one that is not there has no
    size, and keeps its place.
    """
    machine = () if hardware is None else hardware.all_gpus or ()
    slices = (each for gpu in machine for each in gpu.slices or ())
    known = (*seen, *machine, *slices)
    return tuple(
        next((gpu for gpu in known if _is_named(gpu, name)), _unseen(place, name))
        for place, name in enumerate(ids)
    )


def _unseen(place: int, name: str) -> Gpu:
    return Gpu(int(name)) if name.isdecimal() else Gpu(place, name)


def _is_named(gpu: Gpu, name: str) -> bool:
    if name == str(gpu.index):
        return True
    return gpu.uuid is not None and name[:4] in ("GPU-", "MIG-") and gpu.uuid.startswith(name)
