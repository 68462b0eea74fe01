"""Asks the driver for the GPUs, through nvidia-ml-py; no CUDA context is ever made.

A driver fails in many ways, for all GPUs or for one: what it says of the others still counts, and
what it refuses is told. The module decodes strictly and passes odd answers on: anything is raised.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from kimi_serve.schemas.hardware import Gpu

MIB = 2**20
# Codes of NVML: not supported, and beside it no such function; no permission and not found.
_NOT_SUPPORTED = 3
_UNKNOWN = (_NOT_SUPPORTED, 13)
_NO_SLICE = (4, 6)


@dataclass(frozen=True, slots=True)
class DriverAnswer:
    """The GPUs that can be used, None where the driver did not answer; `note` says how it went."""

    gpus: tuple[Gpu, ...] | None
    note: str


def import_nvml() -> Any | None:
    """Give the pynvml module, None where it is not installed."""
    try:
        return importlib.import_module("pynvml")
    except ImportError:
        return None


def load_and_ask(load: Callable[[], Any | None]) -> DriverAnswer:
    """Import the module and ask; a module that is broken is as good as none."""
    try:
        nvml = load()
    except Exception as error:  # noqa: BLE001 - border of a foreign module: all of it is told
        return DriverAnswer(None, f"pynvml cannot be imported: {said(error)}")
    return ask_driver(nvml)


def ask_driver(nvml: Any | None) -> DriverAnswer:
    """List the GPUs that the driver shows to this process."""
    if nvml is None:
        return DriverAnswer(None, "pynvml is not installed")
    try:
        nvml.nvmlInit()
    except Exception as error:  # noqa: BLE001 - as above
        return DriverAnswer(None, f"NVML failed: {said(error)}")
    try:
        number = int(nvml.nvmlDeviceGetCount())
        notes: list[str] = []
        found = [_read(nvml, index, notes) for index in range(number)]
    except Exception as error:  # noqa: BLE001 - as above
        return DriverAnswer(None, f"NVML failed: {said(error)}")
    finally:
        # A driver that lost its GPU may not even end its session.
        with contextlib.suppress(Exception):
            nvml.nvmlShutdown()
    gpus = tuple(gpu for gpu in found if gpu is not None)
    noun = "GPU" if number == 1 else "GPUs"
    return DriverAnswer(gpus, "; ".join([f"NVML lists {number or 'no'} {noun}", *notes]))


def said(error: Exception) -> str:
    """Give what an error of the module says: of its own the text, of others the kind too."""
    text, kind = str(error), type(error).__name__
    if not text:
        return kind
    return text if "NVMLError" in kind else f"{kind}: {text}"


def _read(nvml: Any, index: int, notes: list[str]) -> Gpu | None:
    """Describe one GPU, None where it cannot be used; `notes` gets all that failed."""
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        uuid = _text(nvml.nvmlDeviceGetUUID(handle))
    except Exception as error:  # noqa: BLE001 - one GPU's failure is not that of the others
        notes.append(f"GPU {index} cannot be used: {said(error)}")
        return None
    slices = None
    if _is_divided(nvml, handle, index, notes):
        slices = tuple(_slices(nvml, handle, index, notes))
    return _describe(nvml, handle, Gpu(index, uuid, slices=slices), notes)


def _describe(nvml: Any, handle: Any, gpu: Gpu, notes: list[str]) -> Gpu:
    which = f"GPU {gpu.index}" if (gpu.uuid or "")[:4] != "MIG-" else f"GPU {gpu.index}'s slice"
    name: str | None = None
    try:
        name = _text(nvml.nvmlDeviceGetName(handle))
    except Exception as error:  # noqa: BLE001 - it is used without a name
        notes.append(f"{which} tells no name: {said(error)}")
    total: int | None = None
    free: int | None = None
    fault = ""
    try:
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        total, free = max(0, memory.total // MIB) or None, memory.free // MIB
    except Exception as error:  # noqa: BLE001 - it is used, its size unknown
        # Not supported where a GPU shares the memory of the machine (Jetson, GB10).
        total, fault = None, "" if _code(error) == _NOT_SUPPORTED else said(error)
    if total is not None and free is not None and not 0 <= free <= total:
        notes.append(f"{which} tells {free} MiB free of {total}, which is not believed")
        free = None
    if fault:
        notes.append(f"{which} tells no memory: {fault}")
    free = free if total else None
    return replace(gpu, name=name, total_mib=total, free_mib=free, memory_fault=fault)


def _is_divided(nvml: Any, handle: Any, index: int, notes: list[str]) -> bool:
    try:
        current, _ = nvml.nvmlDeviceGetMigMode(handle)
    except Exception as error:  # noqa: BLE001 - it is used as a whole
        # Old drivers and modules do not know the question.
        if _code(error) not in _UNKNOWN and not isinstance(error, AttributeError):
            notes.append(f"GPU {index} does not tell whether it is divided: {said(error)}")
        return False
    return bool(current)


def _slices(nvml: Any, handle: Any, index: int, notes: list[str]) -> Iterator[Gpu]:
    try:
        most = int(nvml.nvmlDeviceGetMaxMigDeviceCount(handle))
    except Exception as error:  # noqa: BLE001 - what is left of a divided GPU is no device
        notes.append(f"GPU {index} is divided (MIG), its slices cannot be listed: {said(error)}")
        return
    for place in range(most):
        try:
            found = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, place)
            uuid = _text(nvml.nvmlDeviceGetUUID(found))
        except Exception as error:  # noqa: BLE001 - one slice's failure is not that of the others
            # Places without a device are not found; a container may not see those of others.
            if _code(error) not in _NO_SLICE:
                notes.append(f"slice {place} of GPU {index} cannot be used: {said(error)}")
        else:
            yield _describe(nvml, found, Gpu(index, uuid), notes)


def _code(error: Exception) -> object:
    """Give the code that the module's own errors have."""
    return getattr(error, "value", None)


def _text(value: object) -> str:
    """Read what older releases of the module give as bytes."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, str):
        return value
    raise TypeError(f"{value!r} is no text")
