"""What the driver says about GPU memory: of each process and of the whole device.

The module of the driver may raise anything: what it refuses is not measured, and `fault` says why.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection
from typing import Any, TypeVar

from ..machine.nvml import said

MIB = 2**20
Answer = TypeVar("Answer")


class GpuMemory:
    """NVML on one device."""

    def __init__(self, nvml: Any, index: int) -> None:
        self._nvml = nvml
        self._handle = nvml.nvmlDeviceGetHandleByIndex(index)
        self.fault = ""

    def used_mib(self) -> float | None:
        """Give what is used of the device, by whomever."""
        return self._asked(
            lambda: float(self._nvml.nvmlDeviceGetMemoryInfo(self._handle).used) / MIB
        )

    def by_process(self) -> dict[int, float | None] | None:
        """Give what each process uses; None where the driver does not say how much."""
        return self._asked(self._by_process)

    def _by_process(self) -> dict[int, float | None]:
        found: dict[int, float | None] = {}
        for process in self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handle):
            used = process.usedGpuMemory
            found[int(process.pid)] = None if used is None else float(used) / MIB
        return found

    def of(self, pids: Collection[int]) -> tuple[float, ...] | None:
        """Give what each of these processes uses; None where the driver does not list them all.

        In a container it may list them by the host's numbers.
        """
        found = self.by_process() or {}
        known = [found.get(pid) for pid in pids]
        return None if None in known else tuple(used for used in known if used is not None)

    def _asked(self, ask: Callable[[], Answer]) -> Answer | None:
        try:
            return ask()
        except Exception as error:  # noqa: BLE001 - border of a foreign module: all of it is told
            self.fault = self.fault or f"NVML: {said(error)}"
            return None


def open_gpu_memory(
    index: int, load: Callable[[str], Any] = importlib.import_module
) -> tuple[GpuMemory | None, str]:
    """Give NVML on a device, or None and why not."""
    try:
        nvml = load("pynvml")
    except ImportError:
        return None, "nvidia-ml-py is not installed (pip install 'kimi-serve[gpu]')"
    except Exception as error:  # noqa: BLE001 - as above
        return None, f"pynvml cannot be imported: {said(error)}"
    try:
        nvml.nvmlInit()
        return GpuMemory(nvml, index), ""
    except Exception as error:  # noqa: BLE001 - as above
        return None, f"NVML: {said(error)}"
