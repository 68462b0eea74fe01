"""How often the kernel's OOM killer struck here, to tell it from other ends by SIGKILL."""

from __future__ import annotations

import re
from pathlib import Path

from .cgroups import group_folders, parse_cgroups

_COUNT = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)


def count_oom_kills(root: Path = Path("/")) -> int | None:
    """Count in this process's control group, else on the machine; None where neither is known.

    Groups of version 2 count their descendants too, so an engine in the same group is included.
    """
    groups = parse_cgroups(_read(root / "proc/self/cgroup"))
    found: int | None = None
    if "memory" in groups:
        folder = next(group_folders(root / "sys/fs/cgroup/memory", groups["memory"]))
        found = parse_oom_kills(_read(folder / "memory.oom_control"))
    elif "" in groups:
        folder = next(group_folders(root / "sys/fs/cgroup", groups[""]))
        found = parse_oom_kills(_read(folder / "memory.events"))
    return parse_oom_kills(_read(root / "proc/vmstat")) if found is None else found


def parse_oom_kills(text: str) -> int | None:
    """Read memory.events, memory.oom_control or /proc/vmstat: all have the same line."""
    found = _COUNT.search(text)
    return int(found[1]) if found else None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
