"""Which of the machine's GPUs a child would see: the rules of CUDA_VISIBLE_DEVICES, no I/O."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kimi_serve.schemas.hardware import Gpu


def visible_gpus(gpus: Sequence[Gpu], text: str | None) -> tuple[Gpu, ...]:
    """Filter and order `gpus` as CUDA does for CUDA_VISIBLE_DEVICES=`text`; None is unset.

    The first entry that names no device ends the list, so "" and "-1" leave none; a device that
    is named twice hides all. Numbers count in the order of the bus (NVML's), which differs from
    CUDA's own only between GPUs of different speed. A process sees one MIG slice at most, and
    beside it no other GPU: the first slice of the first divided GPU, where nobody names one.
    """
    if text is None:
        return _enumerable(gpus)
    chosen: list[Gpu] = []
    for entry in text.split(","):
        gpu = _find(gpus, entry.strip(), len(chosen))
        if gpu is None:
            break
        if gpu in chosen:
            return ()
        chosen.append(gpu)
    return _enumerable(chosen)


def _enumerable(gpus: Sequence[Gpu]) -> tuple[Gpu, ...]:
    for gpu in gpus:
        if gpu.slices:
            return gpu.slices[:1]
        if _is_slice(gpu):
            return (gpu,)
    # One that is divided and has no slice yet is no device.
    return tuple(gpu for gpu in gpus if gpu.slices is None)


def _is_slice(gpu: Gpu) -> bool:
    return gpu.uuid is not None and gpu.uuid.startswith("MIG-")


def _find(gpus: Sequence[Gpu], entry: str, position: int) -> Gpu | None:
    number = re.match(r"[+-]?\d+", entry, re.ASCII)
    if number:
        index = int(number[0])
        return gpus[index] if 0 <= index < len(gpus) else None
    if entry.startswith("MIG-"):
        return _find_slice(gpus, entry, position)
    if entry.startswith("GPU-"):
        return _find_uuid(gpus, entry, position)
    return None


def _find_slice(gpus: Sequence[Gpu], entry: str, position: int) -> Gpu | None:
    """Find a slice by UUID, or by the older MIG-GPU-<uuid>/<instance>/<instance>."""
    slices = [each for gpu in gpus for each in gpu.slices or ()]
    named = [each for each in slices if each.uuid and each.uuid.startswith(entry)]
    if len(named) == 1:
        return named[0]
    # A driver that was not asked for slices, or that names them otherwise: believed, size unknown.
    is_checked = bool(slices) and not entry.startswith("MIG-GPU-")
    return Gpu(position, uuid=entry) if gpus and position == 0 and not is_checked else None


def _find_uuid(gpus: Sequence[Gpu], uuid: str, position: int) -> Gpu | None:
    """Match by prefix, which CUDA accepts as long as it is unique."""
    if not any(gpu.uuid for gpu in gpus):
        # Counted by device files: a UUID cannot be checked, so it is believed.
        return Gpu(position, uuid=uuid) if position < len(gpus) else None
    matches = [gpu for gpu in gpus if gpu.uuid and gpu.uuid.startswith(uuid)]
    return matches[0] if len(matches) == 1 else None
