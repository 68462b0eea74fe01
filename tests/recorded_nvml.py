"""A stand-in for the pynvml module of nvidia-ml-py that answers as recorded drivers do.

Function names, error classes, codes and texts are nvidia-ml-py 13's; tests/unit/test_nvml.py
compares them with the module where it is installed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

MIB = 2**20
TEXTS = {
    3: "Not Supported",
    4: "Insufficient Permissions",
    6: "Not Found",
    9: "Driver Not Loaded",
    12: "NVML Shared Library Not Found",
    13: "Function Not Found",
    15: "GPU is lost",
    18: "RM has detected an NVML/RM version mismatch.",
    999: "Unknown Error",
}


class NVMLError(Exception):
    """The module's own base: a code, and its text."""

    def __init__(self, value: int) -> None:
        super().__init__(value)
        self.value = value

    def __str__(self) -> str:
        return TEXTS[self.value]


@dataclass(frozen=True)
class Device:
    """One device as the driver tells it; `faults` has the code that a question ends with."""

    uuid: str
    name: str
    total_mib: int = 0
    used_mib: int = 0
    slices: Sequence[Device | None] | None = None
    faults: Mapping[str, int] = field(default_factory=lambda: dict[str, int]())


class RecordedNvml:
    """The functions that the probe calls, with the module's names."""

    NVMLError = NVMLError

    def __init__(self, *devices: Device, init: int = 0, count: int = 0, is_old: bool = False):
        self.devices = devices
        self.faults = {"nvmlInit": init, "nvmlDeviceGetCount": count}
        self.is_old = is_old
        self.num_open = 0

    def _answer(self, name: str, device: Device | None = None) -> None:
        code = self.faults.get(name, 0) if device is None else device.faults.get(name, 0)
        if code:
            raise NVMLError(code)

    def _text(self, text: str) -> Any:
        return text.encode() if self.is_old else text

    def nvmlInit(self) -> None:
        self._answer("nvmlInit")
        self.num_open += 1

    def nvmlShutdown(self) -> None:
        self.num_open -= 1
        self._answer("nvmlShutdown")

    def nvmlDeviceGetCount(self) -> int:
        self._answer("nvmlDeviceGetCount")
        return len(self.devices)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Device:
        self._answer("nvmlDeviceGetHandleByIndex", self.devices[index])
        return self.devices[index]

    def nvmlDeviceGetUUID(self, handle: Device) -> Any:
        self._answer("nvmlDeviceGetUUID", handle)
        return self._text(handle.uuid)

    def nvmlDeviceGetName(self, handle: Device) -> Any:
        self._answer("nvmlDeviceGetName", handle)
        return self._text(handle.name)

    def nvmlDeviceGetMemoryInfo(self, handle: Device) -> Any:
        self._answer("nvmlDeviceGetMemoryInfo", handle)
        free = handle.total_mib - handle.used_mib
        return SimpleNamespace(
            total=handle.total_mib * MIB, free=free * MIB, used=handle.used_mib * MIB
        )

    def nvmlDeviceGetMigMode(self, handle: Device) -> list[int]:
        if self.is_old:
            raise NVMLError(13)
        self._answer("nvmlDeviceGetMigMode", handle)
        if handle.slices is None:
            return [0, 0]
        return [1, 1]

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: Device) -> int:
        self._answer("nvmlDeviceGetMaxMigDeviceCount", handle)
        return len(handle.slices or ())

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Device, index: int) -> Device:
        found = (handle.slices or ())[index]
        if found is None:
            raise NVMLError(6)
        return found


H200 = Device("GPU-5a5c9f6e-0000-4000-8000-000000000000", "NVIDIA H200", 143771, 585)
H100 = Device("GPU-7b1e2d3c-0000-4000-8000-000000000001", "NVIDIA H100 80GB HBM3", 81559, 530)
RTX = Device(
    "GPU-9c2f3e4d-0000-4000-8000-000000000002",
    "NVIDIA RTX PRO 6000 Blackwell",
    97887,
    612,
    faults={"nvmlDeviceGetMigMode": 3},
)
# No memory of its own: Jetson and GB10 share the machine's.
GB10 = Device(
    "GPU-1d4a5b6c-0000-4000-8000-000000000003",
    "NVIDIA GB10",
    faults={"nvmlDeviceGetMemoryInfo": 3, "nvmlDeviceGetMigMode": 3},
)
LOST = Device(
    "GPU-2e5b6c7d-0000-4000-8000-000000000004",
    "NVIDIA H100 80GB HBM3",
    faults={"nvmlDeviceGetHandleByIndex": 15},
)
HIDDEN = Device(
    "GPU-3f6c7d8e-0000-4000-8000-000000000005",
    "NVIDIA H100 80GB HBM3",
    faults={"nvmlDeviceGetHandleByIndex": 4},
)
SLICE_1 = Device("MIG-11111111-0000-5000-8000-000000000001", "NVIDIA H100 MIG 3g.40gb", 40448, 37)
SLICE_2 = Device("MIG-22222222-0000-5000-8000-000000000002", "NVIDIA H100 MIG 1g.10gb", 9984, 12)
DIVIDED = Device(
    "GPU-4a7d8e9f-0000-4000-8000-000000000006",
    "NVIDIA H100 80GB HBM3",
    81559,
    87,
    slices=(SLICE_1, None, SLICE_2, None, None, None, None),
)
EMPTY = Device(
    "GPU-5b8e9fa0-0000-4000-8000-000000000007", "NVIDIA H100 80GB HBM3", 81559, slices=(None,) * 7
)
