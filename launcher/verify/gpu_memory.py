"""What the driver says about GPU memory: of each process and of the whole device."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection
from typing import Any

MIB = 2**20


class GpuMemory:
    """NVML on one device; use as a context manager."""

    def __init__(self, nvml: Any, index: int) -> None:
        self._nvml = nvml
        self._handle = nvml.nvmlDeviceGetHandleByIndex(index)

    def used_mib(self) -> float:
        """Give what is used of the device, by whomever."""
        return float(self._nvml.nvmlDeviceGetMemoryInfo(self._handle).used) / MIB

    def by_process(self) -> dict[int, float | None]:
        """Give what each process uses; None where the driver does not say how much."""
        found: dict[int, float | None] = {}
        for process in self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handle):
            used = process.usedGpuMemory
            found[int(process.pid)] = None if used is None else float(used) / MIB
        return found

    def of(self, pids: Collection[int]) -> tuple[float, ...] | None:
        """Give what each of these processes uses; None where the driver does not list them all.

        In a container it may list them by the host's numbers.
        """
        found = self.by_process()
        known = [found.get(pid) for pid in pids]
        return None if None in known else tuple(used for used in known if used is not None)


def open_gpu_memory(
    index: int, load: Callable[[str], Any] = importlib.import_module
) -> tuple[GpuMemory | None, str]:
    """Give NVML on a device, or None and why not."""
    try:
        nvml = load("pynvml")
    except ImportError:
        return None, "nvidia-ml-py is not installed (pip install 'kimi-serve[gpu]')"
    try:
        nvml.nvmlInit()
        return GpuMemory(nvml, index), ""
    except nvml.NVMLError as error:
        return None, f"NVML: {error}"
