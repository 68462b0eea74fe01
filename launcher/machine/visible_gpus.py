"""Which of the machine's GPUs a child would see: the rules of CUDA_VISIBLE_DEVICES, no I/O."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kimi_serve.schemas.hardware import Gpu


def visible_gpus(gpus: Sequence[Gpu], text: str | None) -> tuple[Gpu, ...]:
    """Filter and order `gpus` as CUDA does for CUDA_VISIBLE_DEVICES=`text`; None is unset.

    The first entry that names no device ends the list, so "" and "-1" leave none; a device that
    is named twice hides all. Numbers count in the order of the bus (NVML's), which differs from
    CUDA's own only between GPUs of different speed.
    """
    if text is None:
        return tuple(gpus)
    chosen: list[Gpu] = []
    for entry in text.split(","):
        gpu = _find(gpus, entry.strip(), len(chosen))
        if gpu is None:
            break
        if gpu in chosen:
            return ()
        chosen.append(gpu)
    return tuple(chosen)


def _find(gpus: Sequence[Gpu], entry: str, position: int) -> Gpu | None:
    number = re.match(r"[+-]?\d+", entry, re.ASCII)
    if number:
        index = int(number[0])
        return gpus[index] if 0 <= index < len(gpus) else None
    if entry.startswith("MIG-"):
        # A slice of a GPU: the driver's list of whole devices does not have it. CUDA takes one.
        return Gpu(position, uuid=entry) if gpus and position == 0 else None
    if entry.startswith("GPU-"):
        return _find_uuid(gpus, entry, position)
    return None


def _find_uuid(gpus: Sequence[Gpu], uuid: str, position: int) -> Gpu | None:
    """Match by prefix, which CUDA accepts as long as it is unique."""
    if not any(gpu.uuid for gpu in gpus):
        # Counted by device files: a UUID cannot be checked, so it is believed.
        return Gpu(position, uuid=uuid) if position < len(gpus) else None
    matches = [gpu for gpu in gpus if gpu.uuid and gpu.uuid.startswith(uuid)]
    return matches[0] if len(matches) == 1 else None
