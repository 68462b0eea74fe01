"""Every way to end, in words."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from kimi_serve.launcher.supervise.endings import Ending, Exited, KeeperLost, NotStarted
from kimi_serve.launcher.supervise.exits import End, explain


def code(number: int) -> Exited:
    return Exited(number << 8)


def killed(number: int) -> Exited:
    return Exited(number)


NO_SGLANG = (
    "/opt/python: Error while finding module specification for 'sglang.launch_server' "
    "(ModuleNotFoundError: No module named 'sglang')"
)
OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
NOTE = "16 x 800 MiB = 12.5 GiB of contexts: at most 10 fit (lower tokenizer.worker_num to 10)"

Case = tuple[Ending, dict[str, Any], tuple[str, ...], bool]
CASES: list[Case] = [
    (code(0), {}, ("exit code 0 before it was ready: that is a failure", "server.api_key"), False),
    (code(0), {"engine": "vllm"}, ("before it was ready: that is a failure",), False),
    (code(0), {"phase": "ready"}, ("though nobody stopped it", "it wrote nothing"), False),
    (code(0), {"phase": "ready", "engine": "vllm"}, ("its engine process died",), False),
    (code(0), {"lines": ("x",)}, ("the error is further up",), False),
    (Exited(0, 2), {}, ("stayed 2 processes, which were ended", "to the background"), False),
    (code(1), {}, ("ended before it was ready: exit code 1",), False),
    (
        code(1),
        {"lines": ("Traceback (most recent call last):", "  File x", "ValueError: tp % nnodes")},
        ("exit code 1: ValueError: tp % nnodes",),
        False,
    ),
    (code(1), {"lines": (NO_SGLANG,)}, ("/opt/python has no sglang", "pip install sglang"), True),
    (
        code(1),
        {"lines": ("/opt/python: No module named sglang",)},
        ("has no sglang",),
        True,
    ),
    (
        code(1),
        {"lines": ("Ignore import error: No module named 'cutlass'", "ValueError: other")},
        ("ValueError: other",),
        False,
    ),
    (
        code(1),
        {"lines": ("ModuleNotFoundError: No module named 'orjson'",)},
        ("needs the module orjson",),
        True,
    ),
    (
        code(2),
        {"lines": ("launch_server.py: error: unrecognized arguments: --x",)},
        ("does not understand its command line", "unrecognized arguments: --x"),
        True,
    ),
    (code(2), {"phase": "ready"}, ("while it served: exit code 2",), False),
    (code(126), {}, ("may not run its program",), True),
    (code(127), {}, ("does not find its program",), True),
    (killed(9), {"oom_kills": 0}, ("the OOM killer did not strike; sglang kills itself",), False),
    (code(137), {}, ("killed by SIGKILL (exit code 137)", "cannot be read here"), False),
    (killed(9), {"oom_kills": 1, "memory_note": NOTE}, ("host memory ran out", NOTE), False),
    (killed(9), {"oom_kills": 0, "engine": "vllm"}, ("somebody else killed it",), False),
    (killed(11), {"phase": "ready"}, ("while it served: killed by SIGSEGV",), False),
    (killed(139), {}, ("killed by SIGSEGV",), False),  # with the bit of a core dump
    (killed(7), {}, ("killed by SIGBUS", "/dev/shm"), False),
    (killed(6), {}, ("killed by SIGABRT",), False),
    (killed(15), {"phase": "ready"}, ("killed by SIGTERM", "stop kimi-serve instead"), False),
    (code(3), {"phase": "ready"}, ("exit code 3",), False),
    (code(255), {}, ("exit code 255",), False),
    (
        killed(9),
        {"lines": (OUT_OF_MEMORY,), "memory_note": NOTE},
        ("ran out of GPU memory while it started", NOTE),
        False,
    ),
    (code(1), {"lines": (OUT_OF_MEMORY,)}, ("gpu.mem_fraction_static",), False),
    (killed(15), {"timeout_s": 30.0}, ("not ready within 30 s", "startup_timeout_s"), False),
    (
        killed(15),
        {"timeout_s": 30.0, "unready": ("it answered 302", "look who answers")},
        ("within 30 s and was stopped: it answered 302", "look who answers"),
        False,
    ),
    (KeeperLost(), {}, ("the keeper of sglang was killed",), False),
    (NotStarted(errno.ENOENT, ""), {}, ("there is no /opt/python", "engine.python"), True),
    (NotStarted(errno.ENOENT, ""), {"python": "python9"}, ("no program python9 is in PATH",), True),
    (NotStarted(errno.EACCES, ""), {}, ("/opt/python is not executable", "chmod +x"), True),
    (NotStarted(errno.EISDIR, ""), {}, ("is a folder", "/opt/python/bin/python"), True),
    (NotStarted(errno.ENOEXEC, ""), {}, ("is no program", "#!"), True),
    (NotStarted(errno.E2BIG, "Argument list too long"), {}, ("Argument list too long",), True),
]


@pytest.mark.parametrize(("ending", "changes", "said", "is_usage"), CASES)
def test_every_end_is_explained(
    ending: Ending, changes: dict[str, Any], said: tuple[str, ...], is_usage: bool
) -> None:
    known: dict[str, Any] = {
        "engine": "sglang",
        "python": "/opt/python",
        "ending": ending,
        "phase": "starting",
    }
    found = explain(End(**(known | changes)))
    text = f"{found.message} {found.hint}"
    assert [part for part in said if part not in text] == [], text
    assert found.is_usage == is_usage
