"""Reads what the kernel writes about control groups and memory: text in, numbers out, no I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import PurePath
from typing import TypeVar

AnyPath = TypeVar("AnyPath", bound=PurePath)


def parse_cgroups(text: str) -> dict[str, str]:
    """Read /proc/self/cgroup: path by controller, "" for the unified hierarchy of version 2."""
    groups: dict[str, str] = {}
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, separator, path = rest.partition(":")
        if separator and number.isdigit():
            groups |= dict.fromkeys(controllers.split(","), path)
    return groups


def group_folders(base: AnyPath, group: str) -> Iterator[AnyPath]:
    """Give the folders of a control group and its parents up to `base`: every one limits it.

    Inside a container the path may lead out of the namespace by "..": then only `base`, the
    group of the container itself, can be read.
    """
    parts = [part for part in group.split("/") if part]
    if ".." in parts:
        parts = []
    for count in range(len(parts), -1, -1):
        yield base.joinpath(*parts[:count])


def parse_cpu_max(text: str) -> float | None:
    """Read version 2's cpu.max: cores, None for no limit."""
    found = re.fullmatch(r"(\d+) ([1-9]\d*)", text.strip())
    return int(found[1]) / int(found[2]) if found else None


def parse_cpu_quota(quota: str, period: str) -> float | None:
    """Read version 1's cpu.cfs_quota_us and cpu.cfs_period_us: cores, None for no limit (-1)."""
    return parse_cpu_max(f"{quota.strip()} {period.strip()}")


def parse_limit_bytes(text: str) -> int | None:
    """Read memory.max or memory.limit_in_bytes; None for "max" and for version 1's 2^63 or so."""
    limit = int(text) if re.fullmatch(r"\s*\d+\s*", text) else None
    return limit if limit is not None and limit < 2**60 else None


def parse_mem_total(text: str) -> int | None:
    """Read MemTotal of /proc/meminfo, in bytes."""
    found = re.search(r"^MemTotal:\s+(\d+) kB$", text, re.MULTILINE)
    return int(found[1]) * 1024 if found else None


def effective_cpus(affinity: int, quotas: Iterable[float | None]) -> float:
    """Give the smallest of the affinity and all quotas."""
    return min([float(affinity), *(quota for quota in quotas if quota is not None)])


def effective_memory_mib(total: int | None, limits: Iterable[int | None]) -> int:
    """Give the smallest of the machine's memory and all limits; 0 where none is known."""
    known = [size for size in (total, *limits) if size is not None]
    return min(known, default=0) // 2**20
