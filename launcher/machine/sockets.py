"""Who listens on a port and who talks to it, as far as /proc tells.

A socket of another network namespace is not in the tables, and the descriptors of another user's
process cannot be read: every answer may be "unknown".
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_ESTABLISHED = 0x01
_LISTEN = 0x0A
_COMMAND_WORDS = 4


@dataclass(frozen=True, slots=True)
class TcpRow:
    """One socket of /proc/net/tcp or tcp6."""

    local_port: int
    remote_port: int
    state: int
    inode: int


def parse_tcp(text: str) -> Iterator[TcpRow]:
    """Read the table; lines of another shape are left out."""
    for line in text.splitlines()[1:]:
        fields = line.split()
        try:
            yield TcpRow(
                local_port=int(fields[1].rpartition(":")[2], 16),
                remote_port=int(fields[2].rpartition(":")[2], 16),
                state=int(fields[3], 16),
                inode=int(fields[9]),
            )
        except (IndexError, ValueError):
            continue


def listening_inodes(port: int, *, proc: Path = Path("/proc")) -> frozenset[int]:
    """Give the sockets that listen on `port`, on whatever address."""
    return frozenset(
        row.inode for row in _rows(proc) if row.state == _LISTEN and row.local_port == port
    )


def count_connections(port: int, *, proc: Path = Path("/proc")) -> int:
    """Tell how many connections `port` of this machine has."""
    return sum(row.state == _ESTABLISHED and row.local_port == port for row in _rows(proc))


def listening_ports(pids: Iterable[int], *, proc: Path = Path("/proc")) -> list[int]:
    """Give the ports on which some of these processes listen."""
    rows = [row for row in _rows(proc) if row.state == _LISTEN]
    held = {name for pid in pids for name in _descriptors(proc / str(pid) / "fd")}
    return sorted({row.local_port for row in rows if f"socket:[{row.inode}]" in held})


def unix_inodes(path: str, *, proc: Path = Path("/proc")) -> frozenset[int]:
    """Give the sockets that are bound to a socket file."""
    try:
        text = (proc / "net" / "unix").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return frozenset()
    fields = (line.split(maxsplit=7) for line in text.splitlines()[1:])
    return frozenset(int(each[6]) for each in fields if len(each) == 8 and each[7] == path)


def owners(
    inodes: frozenset[int], pids: Iterable[int] | None = None, *, proc: Path = Path("/proc")
) -> frozenset[int]:
    """Give the processes (all, or some of `pids`) that hold one of these sockets."""
    wanted = {f"socket:[{inode}]" for inode in inodes if inode}
    candidates = all_pids(proc) if pids is None else pids
    return frozenset(pid for pid in candidates if _holds(proc / str(pid) / "fd", wanted))


def describe_owner(port: int, *, proc: Path = Path("/proc")) -> str:
    """Name who listens on `port`: "pid 7 (python3 -m http.server)", "" where /proc hides it."""
    holders = owners(listening_inodes(port, proc=proc), proc=proc)
    if not holders:
        return ""
    # Workers of one server share a socket; the eldest started it.
    pid = min(holders)
    others = f" and {len(holders) - 1} more" if len(holders) > 1 else ""
    return f"pid {pid} ({command_of(pid, proc=proc)}){others}"


def command_of(pid: int, *, proc: Path = Path("/proc")) -> str:
    """Give the first words of a command; what follows may hold secrets."""
    try:
        words = (proc / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")
        words = [word for word in words if word]
        if words:
            shown = [os.path.basename(words[0])]
            for word in words[1:_COMMAND_WORDS]:
                if word.startswith("--"):
                    break
                shown.append(word)
            text = " ".join(shown)[:100]
            return "".join(letter if letter.isprintable() else "?" for letter in text)
        return (proc / str(pid) / "comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return "unknown program"


def all_pids(proc: Path = Path("/proc")) -> list[int]:
    """List all processes that this one may see."""
    try:
        return sorted(int(name) for name in os.listdir(proc) if name.isdigit())
    except OSError:
        return []


def _rows(proc: Path) -> Iterator[TcpRow]:
    for name in ("tcp", "tcp6"):
        try:
            text = (proc / "net" / name).read_text(encoding="ascii", errors="replace")
        except OSError:
            continue
        yield from parse_tcp(text)


def _holds(folder: Path, wanted: set[str]) -> bool:
    return any(name in wanted for name in _descriptors(folder))


def _descriptors(folder: Path) -> Iterator[str]:
    """Give what the open files of a process are."""
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        with contextlib.suppress(OSError):
            yield os.readlink(folder / name)
