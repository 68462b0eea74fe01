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


class GpuPeak:
    """The most that some processes and their device used, over all the times that it looked."""

    def __init__(self, memory: GpuMemory) -> None:
        self._memory = memory
        self._before_mib = memory.used_mib()
        self._device_mib: float | None = None
        self._by_process: tuple[float, ...] | None = None

    def look(self, pids: Collection[int]) -> None:
        """Take in what is used now."""
        now, device_mib = self._memory.of(pids), self._memory.used_mib()
        if now is not None:
            most = now if self._by_process is None else self._by_process
            self._by_process = tuple(map(max, most, now))
        if device_mib is not None:
            self._device_mib = max(device_mib, self._device_mib or 0.0)

    @property
    def by_process(self) -> tuple[float, ...] | None:
        """MiB of each process, None where the driver never listed them all."""
        if self._by_process is None:
            return None
        return tuple(round(mib, 1) for mib in self._by_process)

    @property
    def growth_mib(self) -> float | None:
        """MiB of the device beyond what was used before, None where it did not say."""
        if self._before_mib is None or self._device_mib is None:
            return None
        return round(self._device_mib - self._before_mib, 1)


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
