"""Why an engine ended, in words: what the kernel says, when it happened, what it wrote. Pure."""

from __future__ import annotations

import errno
import os
import re
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from kimi_serve.schemas.vocabulary import EngineName

from .endings import Ending, Exited, KeeperLost, NotStarted

Phase = Literal["starting", "ready"]


@dataclass(frozen=True, slots=True)
class End:
    """One life of an engine, when it is over without our having asked for it.

    `timeout_s` is the start's limit when that ended it. `oom_kills` is how often the kernel's OOM
    killer struck meanwhile, None where it cannot be known. `unready` says why the engine was not
    ready in time, and what to do.
    """

    engine: EngineName
    python: str
    ending: Ending
    phase: Phase
    lines: tuple[str, ...] = ()
    timeout_s: float | None = None
    oom_kills: int | None = None
    memory_note: str = ""
    unready: tuple[str, str] = ("", "")


@dataclass(frozen=True, slots=True)
class Explanation:
    """One sentence, what to do, and whether another try could end better."""

    message: str
    hint: str | None = None
    is_usage: bool = False


def explain(end: End) -> Explanation:
    """Say what happened; the most telling sign first."""
    if isinstance(end.ending, NotStarted):
        return _not_started(end, end.ending)
    for sign in (_missing_module, _gpu_memory, _timeout, _lost, _signalled, _exit_code):
        found = sign(end)
        if found is not None:
            return found
    return Explanation(_ended(end))


def _not_started(end: End, ending: NotStarted) -> Explanation:
    python = end.python
    hint = f"set engine.python to the interpreter that has {end.engine} installed"
    match ending.errno:
        case errno.ENOENT | errno.ENOTDIR:
            found = f"no program {python} is in PATH"
            if os.sep in python:
                found = f"there is no {python}, or not the interpreter that its first line names"
        case errno.EISDIR:
            found = f"{python} is a folder"
            hint = f"set engine.python to the interpreter in it, as {python}/bin/python"
        case errno.EACCES | errno.EPERM:
            found = f"{python} is not executable"
            hint = f"chmod +x {python}, or {hint}"
        case errno.ENOEXEC:
            found = f"{python} is no program that this machine can run"
            hint = f"a script needs #! and its interpreter in the first line; or {hint}"
        case _:
            found = f"{python}: {ending.reason}"
    return Explanation(f"{end.engine} cannot be started: {found}", hint, is_usage=True)


_NO_MODULE = re.compile(r"(?:^|[: (])No module named '?([\w.]+)'?")


def _missing_module(end: End) -> Explanation | None:
    # Engines go on without optional modules and say so: only what they died of counts.
    last = _exception_of(end.lines) or next(reversed(end.lines), "")
    if "No module named" not in last:
        last = next(reversed(end.lines), "")
    found = _NO_MODULE.search(last)
    if found is None or end.phase != "starting" or _code_of(end) != 1:
        return None
    name, python = found[1], end.python
    if name in (end.engine, f"{end.engine}.launch_server"):
        message = f"the interpreter {python} has no {end.engine}"
        hint = f"{python} -m pip install {end.engine}, or set engine.python to another one"
    elif name.startswith(f"{end.engine}."):
        message = f"the {end.engine} of the interpreter {python} has no module {name}"
        hint = f"install the version of {end.engine} that engine.version names"
    else:
        message = f"{end.engine} needs the module {name}, which {python} does not have"
        hint = f"{python} -m pip install the package that has {name}"
    return Explanation(message, hint, is_usage=True)


_GPU_MEMORY = re.compile(
    r"torch\.(?:cuda\.)?OutOfMemoryError|CUDA out of memory|CUDA error: out of memory"
    r"|cudaErrorMemoryAllocation|Not enough memory\. Please try to increase --mem-fraction-static"
    r"|No available memory for the cache blocks|less than desired GPU memory utilization"
)


def _gpu_memory(end: End) -> Explanation | None:
    found = next((line for line in reversed(end.lines) if _GPU_MEMORY.search(line)), None)
    if found is None:
        return None
    when = "while it started" if end.phase == "starting" else "while it served"
    message = f"{end.engine} ran out of GPU memory {when} ({_how(end)})"
    if end.memory_note:
        return Explanation(f"{message}; the plan said: {end.memory_note}")
    hint = (
        "lower gpu.mem_fraction_static or tokenizer.worker_num, or keep images off the GPU "
        "(image.force_cpu_preprocessing)"
    )
    return Explanation(message, hint)


def _timeout(end: End) -> Explanation | None:
    if end.timeout_s is None:
        return None
    why, hint = end.unready
    message = f"{end.engine} was not ready within {end.timeout_s:g} s and was stopped"
    hint = hint or "raise engine.startup_timeout_s if it was still loading"
    return Explanation(f"{message}: {why}" if why else message, hint)


def _lost(end: End) -> Explanation | None:
    if not isinstance(end.ending, KeeperLost):
        return None
    message = f"the keeper of {end.engine} was killed, and the engine with it"
    return Explanation(message, "something outside sends SIGKILL: the OOM killer, or a person")


def _signalled(end: End) -> Explanation | None:
    number = _signal_of(end)
    match number:
        case signal.SIGKILL:
            return _killed(end)
        case signal.SIGSEGV | signal.SIGBUS | signal.SIGILL | signal.SIGFPE:
            hint = (
                "native code crashed: a driver, kernel or extension that does not fit this machine"
            )
            if number is signal.SIGBUS:
                hint = "shared memory is full: give the container a larger /dev/shm (--shm-size)"
            return Explanation(_ended(end), hint)
        case signal.SIGABRT:
            hint = "native code gave up: NCCL, CUDA, or a failed assertion" + (
                "; its last words are further up" if end.lines else ""
            )
            return Explanation(_ended(end), hint)
        case signal.SIGTERM | signal.SIGINT | signal.SIGHUP:
            return Explanation(_ended(end), "somebody else stopped it: stop kimi-serve instead")
        case _:
            return None


def _killed(end: End) -> Explanation:
    if end.oom_kills:
        message = f"{_ended(end)}: the kernel's OOM killer struck, host memory ran out"
        if end.memory_note:
            message += f"; the plan said: {end.memory_note}"
        hint = "raise the memory limit, or lower tokenizer.worker_num"
        return Explanation(message, hint)
    doubt = (
        "the OOM killer did not strike"
        if end.oom_kills == 0
        else "whether the OOM killer struck cannot be read here"
    )
    if end.engine == "sglang":
        why = "sglang kills itself so after a failed warm-up or when one of its processes crashed"
    else:
        why = "somebody else killed it"
    look = "look for the first error among the lines of the engine" if end.lines else None
    return Explanation(f"{_ended(end)}: {doubt}; {why}", look)


def _exit_code(end: End) -> Explanation | None:
    code = _code_of(end)
    if code is None:
        return None
    explained: dict[int, Callable[[End], Explanation]] = {
        0: _zero, 1: _one, 2: _two, 126: _not_found, 127: _not_found,
    }  # fmt: skip
    return explained[code](end) if code in explained else None


def _zero(end: End) -> Explanation:
    if end.phase == "ready":
        message = f"{end.engine} ended by itself with exit code 0, though nobody stopped it"
        why = "vllm does so when its engine process died" if end.engine == "vllm" else ""
        return Explanation(message + _left(end), _hint(why, _further_up(end)))
    message = f"{end.engine} ended with exit code 0 before it was ready: that is a failure"
    if _num_left(end):
        why = "what serves must not go to the background: no &, nohup, --daemon or double fork"
        return Explanation(message + _left(end), why)
    why = ""
    if end.engine == "sglang":
        why = (
            "sglang does so when its tokenizer workers fail, as with server.api_key and several "
            "workers"
        )
    return Explanation(message, _hint(why, _further_up(end)))


def _num_left(end: End) -> int:
    return end.ending.num_left if isinstance(end.ending, Exited) else 0


def _left(end: End) -> str:
    """Say what the first process left behind."""
    number = _num_left(end)
    if not number:
        return ""
    them = "a process, which was" if number == 1 else f"{number} processes, which were"
    return f"; behind it stayed {them} ended too"


def _further_up(end: End) -> str:
    return "the error is further up" if end.lines else "it wrote nothing"


def _hint(*parts: str) -> str | None:
    return "; ".join(filter(None, parts)) or None


def _one(end: End) -> Explanation:
    if end.phase == "ready":
        return Explanation(_ended(end), _further_up(end))
    last = _exception_of(end.lines)
    message = _ended(end) + (f": {last}" if last else "")
    see = "see its lines" if end.lines else "it wrote nothing"
    return Explanation(message, f"the engine refused the settings or could not load: {see}")


def _two(end: End) -> Explanation:
    if end.phase == "ready":
        return Explanation(_ended(end))
    refused = next((line for line in reversed(end.lines) if ": error: " in line), "")
    why = refused.partition(": error: ")[2]
    message = f"{end.engine} does not understand its command line (exit code 2)"
    hint = "check engine.args, and engine.version against what is installed"
    return Explanation(f"{message}{f': {why}' if why else ''}", hint, is_usage=True)


def _not_found(end: End) -> Explanation:
    what = "does not find" if _code_of(end) == 127 else "may not run"
    message = f"{end.python} {what} its program ({_how(end)})"
    return Explanation(message, "engine.python is a script: look at what it runs", is_usage=True)


def _ended(end: End) -> str:
    when = "before it was ready" if end.phase == "starting" else "while it served"
    return f"{end.engine} ended {when}: {_how(end)}"


def _how(end: End) -> str:
    number, code = _signal_of(end), _code_of(end)
    if number is not None:
        # A shell, or Python in a script, gives the signal of its child as 128 + number.
        as_code = f" (exit code {code})" if code is not None else ""
        return f"killed by {number.name}{as_code}"
    if isinstance(end.ending, Exited) and os.WIFSIGNALED(end.ending.status):
        return f"killed by signal {os.WTERMSIG(end.ending.status)}"
    return "stopped" if code is None else f"exit code {code}"


def _signal_of(end: End) -> signal.Signals | None:
    if not isinstance(end.ending, Exited):
        return None
    status = end.ending.status
    code = _code_of(end)
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else (code or 0) - 128
    try:
        return signal.Signals(number)
    except ValueError:
        return None


def _code_of(end: End) -> int | None:
    if isinstance(end.ending, Exited) and os.WIFEXITED(end.ending.status):
        return os.WEXITSTATUS(end.ending.status)
    return None


_EXCEPTION = re.compile(r"^(?:\([^)]*\) )?((?:[a-zA-Z_]\w*\.)*[A-Z]\w*(?:Error|Exception)\b.*)$")


def _exception_of(lines: tuple[str, ...]) -> str:
    """Give the last line that names an exception."""
    for line in reversed(lines):
        found = _EXCEPTION.match(line)
        if found:
            return found[1][:300]
    return ""
