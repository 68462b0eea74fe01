"""What this machine offers to a plan: cores, memory and CUDA devices.

GPUs are counted by NVML or by their device files; no CUDA context is ever made.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from kimi_serve.schemas.engine_names import VISIBLE
from kimi_serve.schemas.hardware import Gpu, Hardware

from .cgroups import (
    effective_cpus,
    effective_memory_mib,
    group_folders,
    parse_cgroups,
    parse_cpu_max,
    parse_cpu_quota,
    parse_limit_bytes,
    parse_mem_total,
)
from .nvml import import_nvml, load_and_ask
from .visible_gpus import visible_gpus


def probe(
    env: Mapping[str, str],
    *,
    root: Path = Path("/"),
    load_nvml: Callable[[], Any | None] = import_nvml,
) -> Hardware:
    """Ask the machine; of the environment only CUDA_VISIBLE_DEVICES is read.

    `root` stands before /proc, /sys and /dev. `load_nvml` gives the pynvml module, None without.
    """
    groups = parse_cgroups(_read(root / "proc/self/cgroup"))
    found, note = _find_gpus(root, load_nvml)
    text = env.get(VISIBLE)
    gpus = visible_gpus(found, text)
    if text is not None:
        note = f"{note}; CUDA_VISIBLE_DEVICES={text!r} leaves {len(gpus)}"
    return Hardware(
        cpus=effective_cpus(len(os.sched_getaffinity(0)), _cpu_quotas(root, groups)),
        memory_mib=effective_memory_mib(
            parse_mem_total(_read(root / "proc/meminfo")), _memory_limits(root, groups)
        ),
        gpus=gpus,
        gpu_source=note,
        shm_mib=_size_mib(root / "dev/shm"),
        all_gpus=found,
        has_gpu_extra=has_gpu_extra(),
        has_image_kernel=has_image_kernel(),
    )


def has_gpu_extra() -> bool:
    """Say whether the libraries of the CUDA path are installed; they are not imported."""
    return all(importlib.util.find_spec(name) is not None for name in ("torch", "torchvision"))


def has_image_kernel() -> bool:
    """Say whether the compiled image kernel is installed; it is not imported."""
    return importlib.util.find_spec("kimi_serve.preprocess.native._kernel") is not None


def _size_mib(folder: Path) -> int | None:
    """Give the size of a file system that is mounted here, None where none is."""
    try:
        if not os.path.ismount(folder):
            return None
        found = os.statvfs(folder)
    except OSError:
        return None
    return found.f_blocks * found.f_frsize // 2**20


def _find_gpus(root: Path, load_nvml: Callable[[], Any | None]) -> tuple[tuple[Gpu, ...], str]:
    """Give the devices of the machine and how they were found."""
    answer = load_and_ask(load_nvml)
    if answer.gpus is not None:
        return answer.gpus, answer.note
    files = [entry for entry in _list(root / "dev") if re.fullmatch(r"nvidia\d+", entry)]
    # CUDA numbers what it sees: in a container /dev/nvidia3 alone is device 0.
    gpus = tuple(Gpu(index) for index in range(len(files)))
    return gpus, f"{_count(len(files), 'device file')} /dev/nvidia[0-9]* ({answer.note})"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number or 'no'} {noun}s"


def _v2_folders(root: Path, groups: Mapping[str, str]) -> Iterator[Path]:
    if "" in groups:
        # The second place is where systemd mounts version 2 beside version 1.
        for base in ("sys/fs/cgroup", "sys/fs/cgroup/unified"):
            yield from group_folders(root / base, groups[""])


def _v1_folders(root: Path, groups: Mapping[str, str], controller: str) -> Iterator[Path]:
    if controller in groups:
        yield from group_folders(root / "sys/fs/cgroup" / controller, groups[controller])


def _cpu_quotas(root: Path, groups: Mapping[str, str]) -> Iterator[float | None]:
    for folder in _v2_folders(root, groups):
        yield parse_cpu_max(_read(folder / "cpu.max"))
    for folder in _v1_folders(root, groups, "cpu"):
        yield parse_cpu_quota(
            _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")
        )


def _memory_limits(root: Path, groups: Mapping[str, str]) -> Iterator[int | None]:
    for folder in _v2_folders(root, groups):
        yield parse_limit_bytes(_read(folder / "memory.max"))
    for folder in _v1_folders(root, groups, "memory"):
        yield parse_limit_bytes(_read(folder / "memory.limit_in_bytes"))


def _read(file: Path) -> str:
    """Give the text of a kernel file, "" where this kernel or container has none."""
    try:
        return file.read_text(encoding="utf-8")
    except OSError:
        return ""


def _list(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
