"""The probe: text of the kernel, rules of CUDA_VISIBLE_DEVICES, a driver that answers or fails."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any

import pytest

from kimi_serve.launcher.machine.cgroups import (
    effective_cpus,
    effective_memory_mib,
    group_folders,
    parse_cgroups,
    parse_cpu_max,
    parse_cpu_quota,
    parse_limit_bytes,
    parse_mem_total,
)
from kimi_serve.launcher.machine.hardware import probe
from kimi_serve.launcher.machine.visible_gpus import visible_gpus
from kimi_serve.schemas.hardware import Gpu

GPUS = (Gpu(0, "GPU-aa11"), Gpu(1, "GPU-aa22"), Gpu(2, "GPU-bb33"))
ALL = (0, 1, 2)


@pytest.mark.parametrize(
    ("text", "indices"),
    [
        (None, ALL),
        ("", ()),
        ("-1", ()),
        ("0", (0,)),
        ("2,0", (2, 0)),
        (" 1 , 2 ", (1, 2)),
        ("0,7,1", (0,)),
        ("0,-1,1", (0,)),
        ("0,,1", (0,)),
        ("7", ()),
        ("0,1,0", ()),
        ("none", ()),
        ("GPU-bb33", (2,)),
        ("GPU-bb", (2,)),
        ("GPU-aa", ()),
        ("GPU-aa22,GPU-aa11", (1, 0)),
        ("GPU-cc", ()),
        ("0,GPU-aa11", ()),
    ],
)
def test_cuda_visible_devices(text: str | None, indices: tuple[int, ...]) -> None:
    assert tuple(gpu.index for gpu in visible_gpus(GPUS, text)) == indices


def test_a_slice_of_a_gpu_is_one_device_of_unknown_size() -> None:
    assert visible_gpus(GPUS, "MIG-x,MIG-y") == (Gpu(0, "MIG-x"),)
    assert visible_gpus((), "MIG-x") == ()


def test_a_uuid_is_believed_where_the_driver_was_not_asked() -> None:
    assert visible_gpus((Gpu(0),), "GPU-aa11") == (Gpu(0, "GPU-aa11"),)
    assert visible_gpus((), "GPU-aa11") == ()


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("max 100000\n", None), ("150000 100000\n", 1.5), ("", None), ("x y", None), ("1 0", None)],
)
def test_cpu_max(text: str, cpus: float | None) -> None:
    assert parse_cpu_max(text) == cpus


@pytest.mark.parametrize(
    ("quota", "period", "cpus"), [("-1\n", "100000\n", None), ("250000\n", "100000\n", 2.5)]
)
def test_cpu_quota(quota: str, period: str, cpus: float | None) -> None:
    assert parse_cpu_quota(quota, period) == cpus


@pytest.mark.parametrize(
    ("text", "limit"),
    [("max\n", None), ("1073741824\n", 2**30), ("9223372036854771712\n", None), ("", None)],
)
def test_memory_limit(text: str, limit: int | None) -> None:
    assert parse_limit_bytes(text) == limit


def test_mem_total() -> None:
    assert parse_mem_total("MemTotal:       16384 kB\nMemFree: 1 kB\n") == 2**24
    assert parse_mem_total("") is None


def test_cgroup_lines() -> None:
    text = "4:cpu,cpuacct:/docker/a\n3:memory:/docker/a\n1:name=systemd:/x\n0::/user.slice\n\njunk"
    assert parse_cgroups(text) == {
        "cpu": "/docker/a",
        "cpuacct": "/docker/a",
        "memory": "/docker/a",
        "name=systemd": "/x",
        "": "/user.slice",
    }


@pytest.mark.parametrize(
    ("group", "folders"),
    [("/", ["/g"]), ("/a/b", ["/g/a/b", "/g/a", "/g"]), ("/../../x", ["/g"])],
)
def test_group_folders(group: str, folders: list[str]) -> None:
    assert [str(folder) for folder in group_folders(PurePosixPath("/g"), group)] == folders


def test_the_smallest_limit_counts() -> None:
    assert effective_cpus(8, [None, 4.0, 2.5]) == 2.5
    assert effective_cpus(2, [4.0]) == 2.0
    assert effective_memory_mib(2**30, [None, 2**29]) == 512
    assert effective_memory_mib(None, []) == 0


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return root


def no_nvml() -> None:
    return None


def test_cgroup_v2_with_a_limit_in_a_parent(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/pod/main\n",
            "proc/meminfo": "MemTotal: 33554432 kB\n",
            "sys/fs/cgroup/pod/cpu.max": "50000 100000\n",
            "sys/fs/cgroup/pod/main/cpu.max": "max 100000\n",
            "sys/fs/cgroup/pod/main/memory.max": "2147483648\n",
        },
    )
    found = probe({}, root=root, load_nvml=no_nvml)
    assert (found.cpus, found.memory_mib) == (0.5, 2048)
    assert found.gpus == ()
    assert "pynvml is not installed" in found.gpu_source


def test_cgroup_v1_beside_v2(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            "proc/self/cgroup": "5:memory:/host/path\n4:cpu,cpuacct:/host/path\n0::/\n",
            "proc/meminfo": "MemTotal: 33554432 kB\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "25000\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "1073741824\n",
        },
    )
    found = probe({}, root=root, load_nvml=no_nvml)
    assert (found.cpus, found.memory_mib) == (0.25, 1024)


def test_a_bare_root_still_answers(tmp_path: Path) -> None:
    found = probe({}, root=tmp_path, load_nvml=no_nvml)
    assert found.cpus == len(os.sched_getaffinity(0))
    assert (found.memory_mib, found.gpus) == (0, ())


def test_device_files_are_counted_without_the_driver(tmp_path: Path) -> None:
    names = ("nvidia0", "nvidia3", "nvidiactl", "nvidia-uvm", "nvidia-caps")
    root = write(tmp_path, {f"dev/{name}": "" for name in names})
    found = probe({}, root=root, load_nvml=no_nvml)
    assert found.gpus == (Gpu(0), Gpu(1))
    assert found.gpu_source == "2 device files /dev/nvidia[0-9]* (pynvml is not installed)"
    hidden = probe({"CUDA_VISIBLE_DEVICES": ""}, root=root, load_nvml=no_nvml)
    assert hidden.gpus == ()
    assert hidden.gpu_source.endswith("CUDA_VISIBLE_DEVICES='' leaves 0")


class FakeNVMLError(Exception):
    pass


class FakeNotSupportedError(FakeNVMLError):
    value = 3


class FakeNvml:
    """A driver with one whole GPU and one that does not report its memory."""

    NVMLError = FakeNVMLError
    NVMLError_NotSupported = FakeNotSupportedError

    def __init__(self, fault: str | None = None) -> None:
        self.fault = fault
        self.is_open = False

    def nvmlInit(self) -> None:
        if self.fault:
            raise FakeNVMLError(self.fault)
        self.is_open = True

    def nvmlShutdown(self) -> None:
        self.is_open = False

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        if handle:
            raise FakeNotSupportedError
        return SimpleNamespace(total=81920 * 2**20, free=1024 * 2**20)

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return f"GPU-{handle}"

    def nvmlDeviceGetName(self, handle: int) -> str:
        return "Big"


def test_the_driver_is_asked_and_let_go(tmp_path: Path) -> None:
    nvml = FakeNvml()
    found = probe({}, root=tmp_path, load_nvml=lambda: nvml)
    assert found.gpus == (Gpu(0, "GPU-0", "Big", 81920, 1024), Gpu(1, "GPU-1", "Big"))
    assert found.gpu_source == "NVML lists 2 GPUs"
    assert not nvml.is_open


def test_a_failing_driver_leaves_the_device_files(tmp_path: Path) -> None:
    root = write(tmp_path, {"dev/nvidia0": ""})
    found = probe({}, root=root, load_nvml=lambda: FakeNvml("Driver Not Loaded"))
    assert found.gpus == (Gpu(0),)
    assert found.gpu_source == "1 device file /dev/nvidia[0-9]* (NVML failed: Driver Not Loaded)"


def test_this_machine_answers() -> None:
    found = probe({})
    assert found.cpus > 0
    assert found.memory_mib > 0
    assert found.gpu_source


def test_shared_memory_is_measured_where_it_is_mounted(tmp_path: Path) -> None:
    assert probe({}, root=tmp_path, load_nvml=no_nvml).shm_mib is None
    shared = Path("/dev/shm")
    if shared.is_mount():
        found = probe({}, load_nvml=no_nvml).shm_mib
        assert found is not None
        assert found > 0
