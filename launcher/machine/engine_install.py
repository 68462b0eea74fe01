"""Whether an interpreter has an engine installed, and in which version; the engine is not loaded.

The interpreter reads package metadata only: importing an engine takes ten seconds and may open a
GPU.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from kimi_serve.schemas.engine_launch import EngineInstall
from kimi_serve.schemas.vocabulary import EngineName

TIMEOUT_S = 10.0

# -P leaves the working directory out of the search path: a folder called sglang there is no engine.
# PYTHONPATH stays in, for it is there when the engine runs.
_ASK = """
import importlib.metadata as metadata, importlib.util as util, json, sys
name = sys.argv[1]
try:
    version = metadata.version(name)
except metadata.PackageNotFoundError:
    version = None
print(json.dumps({"version": version, "module": util.find_spec(name) is not None}))
"""


def find_install(
    python: str | None,
    kind: EngineName,
    env: Mapping[str, str] | None = None,
    *,
    timeout_s: float = TIMEOUT_S,
) -> EngineInstall:
    """Ask an interpreter, None for our own, what it has; a bare name is looked up in PATH.

    `env` is what the interpreter inherits, by default what we did. A program that gives no answer,
    a wrapper for instance, may start the engine all the same: that is no problem.
    """
    env = dict(os.environ if env is None else env)
    program = sys.executable if python is None else python
    found = program if os.sep in program else shutil.which(program, path=env.get("PATH"))
    if found is None:
        return EngineInstall(program, None, f"{program} is not in PATH", _choose(kind))
    try:
        answer = subprocess.run(
            [found, "-P", "-c", _ASK, kind],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=env,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return EngineInstall(found, None)
    except (OSError, ValueError) as error:
        return _not_run(found, kind, error)
    return _read(found, kind, answer)


def _choose(kind: EngineName) -> str:
    return f"set engine.python to the interpreter that has {kind} installed"


def _not_run(python: str, kind: EngineName, error: OSError | ValueError) -> EngineInstall:
    """Say why the kernel does not run it, and what fits that case."""
    number = error.errno if isinstance(error, OSError) else None
    reason = getattr(error, "strerror", None) or "it is no program"
    remedy = _choose(kind)
    if os.path.isdir(python):
        reason = "it is a folder"
        remedy = f"set engine.python to the interpreter in it, as {python}/bin/python"
    elif number == errno.ENOENT and os.path.lexists(python):
        reason = "it leads nowhere: its target, or the interpreter that its first line names"
    elif number == errno.ENOENT:
        reason = "there is no such file"
        remedy = f"check spelling and mounts, or {remedy}"
    elif number == errno.EACCES:
        reason = "it is not executable"
        remedy = f"chmod +x {python}, or {remedy}"
    elif number == errno.ENOEXEC:
        reason = "it is no program for this machine"
        remedy = f"a script needs #! and its interpreter in the first line; or {remedy}"
    return EngineInstall(python, None, f"{python} cannot be run: {reason}", remedy)


def _read(
    python: str, kind: EngineName, answer: subprocess.CompletedProcess[bytes]
) -> EngineInstall:
    lines = answer.stdout.decode("utf-8", "replace").splitlines()
    try:
        told: dict[str, Any] = json.loads(lines[-1])
        version, has_module = told["version"], told["module"]
    except (IndexError, ValueError, KeyError, TypeError):
        return EngineInstall(python, None)
    if version is None and not has_module:
        remedy = f"{python} -m pip install {kind}, or {_choose(kind)}"
        return EngineInstall(python, None, f"{python} has no package {kind}", remedy)
    # A source tree on PYTHONPATH has no metadata; what is there can be started nevertheless.
    return EngineInstall(python, version)
