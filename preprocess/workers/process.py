"""What Linux must be told about a worker process, and what it tells about one."""

from __future__ import annotations

import ctypes
import os
import re
import resource
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
# What the kernel, or the process itself, sends for a fault; all others come from somebody else.
_CRASHES = frozenset(
    (
        signal.SIGABRT,
        signal.SIGBUS,
        signal.SIGFPE,
        signal.SIGILL,
        signal.SIGSEGV,
        signal.SIGSYS,
        signal.SIGTRAP,
    )
)
_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")

# The driver and the runtime; either one mapped means that CUDA was touched.
_CUDA_LIBRARY = re.compile(r"/(lib(?:cuda|cudart|nvidia-ml|nvjpeg|torch_cuda)[\w.-]*\.so[\d.]*)")


def die_with_parent(parent_pid: int) -> None:
    """Have the kernel kill this process when its parent ends, however it ends."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:  # the parent ended before the call
        os._exit(1)


def release_memory() -> None:
    """Give free memory back to the system, where the C library can."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def set_name(name: str) -> None:
    """Name this process in `ps` and `top` (15 bytes at most)."""
    _prctl(_PR_SET_NAME, ctypes.create_string_buffer(name.encode()[:15]))


def _prctl(option: int, value: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option})")


def count_threads() -> int:
    """Count the threads of this process."""
    return len(os.listdir("/proc/self/task"))


def limit_memory(more_bytes: int) -> None:
    """Let this process take `more_bytes` beyond what it has; then allocations fail.

    The data limit, because it counts what is allocated (heap and private mappings) and neither
    the shared pixels nor libraries; and by the kernel, because a decoder that lies fills memory
    faster than anybody could look.
    """
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    match = re.search(r"^VmData:\s+(\d+) kB", status, re.MULTILINE)
    if match is not None:
        limit = int(match.group(1)) * 1024 + more_bytes
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def thread_state(pid: int, thread: int) -> tuple[str, float]:
    """Give the state letter of a thread and the processor time it used.

    ("", 0) when it is gone, or cannot be looked at: no descriptor may be left.
    """
    try:
        text = Path(f"/proc/{pid}/task/{thread}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return "", 0.0
    fields = text.rpartition(")")[2].split()
    return fields[0], (int(fields[11]) + int(fields[12])) / _TICKS_A_SECOND


def mapped_cuda_libraries() -> tuple[str, ...]:
    """List the CUDA libraries in this process's memory map; empty proves that none was loaded."""
    maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    return tuple(sorted({match.group(1) for match in _CUDA_LIBRARY.finditer(maps)}))


def describe_exit(status: int) -> str:
    """Put a wait status into words: "exit code 1", "killed by SIGKILL"."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        try:
            return f"killed by {signal.Signals(number).name}"
        except ValueError:
            return f"killed by signal {number}"
    return f"exit code {os.waitstatus_to_exitcode(status)}"


def is_crash(status: int) -> bool:
    """Tell a death of the process's own making from one that came from outside."""
    return not os.WIFSIGNALED(status) or os.WTERMSIG(status) in _CRASHES


def is_torch_imported() -> bool:
    """Say whether torch was imported into this process."""
    return "torch" in sys.modules
