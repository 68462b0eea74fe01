"""Asks the driver for the GPUs, through nvidia-ml-py; no CUDA context is ever made.

A driver fails in many ways, for all GPUs or for one: what it says of the others still counts, and
what it refuses is told.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kimi_serve.schemas.hardware import Gpu

MIB = 2**20


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


def ask_driver(nvml: Any | None) -> DriverAnswer:
    """List the GPUs that the driver shows to this process."""
    if nvml is None:
        return DriverAnswer(None, "pynvml is not installed")
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return DriverAnswer(None, f"NVML failed: {_said(error)}")
    try:
        number = nvml.nvmlDeviceGetCount()
        found = [_read(nvml, index) for index in range(number)]
    except nvml.NVMLError as error:
        return DriverAnswer(None, f"NVML failed: {_said(error)}")
    finally:
        # A driver that lost its GPU may not even end its session.
        with contextlib.suppress(nvml.NVMLError):
            nvml.nvmlShutdown()
    gpus = tuple(each for each in found if isinstance(each, Gpu))
    refused = [each for each in found if isinstance(each, str)]
    noun = "GPU" if number == 1 else "GPUs"
    return DriverAnswer(gpus, "; ".join([f"NVML lists {number or 'no'} {noun}", *refused]))


def _read(nvml: Any, index: int) -> Gpu | str:
    """Describe one GPU, or say why it cannot be used."""
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        uuid = _text(nvml.nvmlDeviceGetUUID(handle))
    except nvml.NVMLError as error:
        return f"GPU {index} cannot be used: {_said(error)}"
    slices = tuple(_slices(nvml, handle, index)) if _is_divided(nvml, handle) else None
    return _describe(nvml, handle, Gpu(index, uuid, slices=slices))


def _describe(nvml: Any, handle: Any, gpu: Gpu) -> Gpu:
    name: str | None = None
    total: int | None = None
    free: int | None = None
    with contextlib.suppress(nvml.NVMLError):
        name = _text(nvml.nvmlDeviceGetName(handle))
    # Not supported where a GPU shares the memory of the machine (Jetson, GB10).
    with contextlib.suppress(nvml.NVMLError):
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        total, free = memory.total // MIB or None, memory.free // MIB
    return Gpu(gpu.index, gpu.uuid, name, total, free if total else None, gpu.slices)


def _is_divided(nvml: Any, handle: Any) -> bool:
    try:
        current, _ = nvml.nvmlDeviceGetMigMode(handle)
    except (AttributeError, nvml.NVMLError):
        return False
    return bool(current)


def _slices(nvml: Any, handle: Any, index: int) -> Iterator[Gpu]:
    try:
        most = nvml.nvmlDeviceGetMaxMigDeviceCount(handle)
    except nvml.NVMLError:
        return
    for place in range(most):
        # Places without a device are not found; a container may not see those of others.
        with contextlib.suppress(nvml.NVMLError):
            found = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, place)
            yield _describe(nvml, found, Gpu(index, _text(nvml.nvmlDeviceGetUUID(found))))


def _text(value: str | bytes) -> str:
    """Read what older releases of the module give as bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__
