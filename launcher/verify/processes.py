"""What the kernel says about worker processes: processor time, memory, mapped libraries."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_OF_CUDA_OR_TORCH = re.compile(r"/(lib(?:cuda|cudart|nvidia|nvjpeg|torch|c10)[\w.-]*\.so[\d.]*)")


def cpu_seconds(pids: Iterable[int]) -> float:
    """Add up the processor time that processes used so far."""
    total = 0.0
    for pid in pids:
        fields = _read(pid, "stat").rpartition(")")[2].split()
        if fields:
            total += (int(fields[11]) + int(fields[12])) / _TICKS
    return total


def pss_mib(pids: Iterable[int]) -> float:
    """Add up the memory of processes, what they share divided by those that share it."""
    total = 0
    for pid in pids:
        found = re.search(r"^Pss:\s+(\d+) kB", _read(pid, "smaps_rollup"), re.MULTILINE)
        total += int(found[1]) if found else 0
    return total / 1024


def gpu_libraries(pid: int) -> tuple[str, ...]:
    """List the libraries of CUDA and of torch that a process has mapped."""
    return tuple(sorted(set(_OF_CUDA_OR_TORCH.findall(_read(pid, "maps")))))


def _read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
