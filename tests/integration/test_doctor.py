"""`kimi-serve doctor` on this machine, and on one whose kernel cannot be loaded."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from native_levels import LEVELS, needs_kernel

ROOT = Path(__file__).parents[2]


def doctor(
    *words: str, path: Path | None = None, limit: int | None = None
) -> subprocess.CompletedProcess[str]:
    env = os.environ | ({} if path is None else {"PYTHONPATH": str(path)})

    def lower() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))

    command = [sys.executable, "-P", "-m", "kimi_serve.launcher", "doctor", *words]
    return subprocess.run(
        command, env=env, capture_output=True, text=True, check=False, preexec_fn=lower
    )


def test_as_text() -> None:
    done = doctor()
    assert (done.returncode, done.stderr) == (0, "")
    assert f"  numpy         {version('numpy')}" in done.stdout.splitlines()
    assert "\nimage kernel\n  path       " in done.stdout


@needs_kernel
def test_as_json() -> None:
    done = doctor("--json", limit=321)
    found = json.loads(done.stdout)
    assert found["image_kernel"]["path"] == f"native {LEVELS[0]}"
    assert (found["image_kernel"]["levels"], found["image_kernel"]["png"]) == (LEVELS, True)
    assert found["open_files"] == {"soft": 321, "hard": 321}
    assert found["hardware"]["has_image_kernel"] is True
    assert found["broken"] == []


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The package without a compiled kernel, in a folder for PYTHONPATH."""
    for name in ("launcher", "preprocess", "schemas"):
        leave_out = shutil.ignore_patterns("*.so", "__pycache__")
        shutil.copytree(ROOT / name, tmp_path / "kimi_serve" / name, ignore=leave_out)
    return tmp_path


def test_without_a_kernel(copy: Path) -> None:
    done = doctor(path=copy)
    assert done.returncode == 0, done.stderr
    assert "  path       pure: the native kernel was not built (no C compiler?)" in done.stdout
    assert "  plain PNG  Pillow" in done.stdout


@pytest.mark.parametrize("content", [b"", b"\x7fELF" + bytes(60)])
def test_a_kernel_that_cannot_be_loaded_is_a_fault(copy: Path, content: bytes) -> None:
    (copy / "kimi_serve/preprocess/native/_kernel.abi3.so").write_bytes(content)
    done = doctor("--json", path=copy)
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert found["image_kernel"]["path"] == "pure"
    (fault,) = found["broken"]
    assert fault.startswith("the native image kernel: the native kernel cannot be loaded: ")


@needs_kernel
def test_a_kernel_that_ends_the_process_is_named(copy: Path) -> None:
    whole = next((ROOT / "preprocess" / "native").glob("_kernel.*so")).read_bytes()
    (copy / "kimi_serve/preprocess/native/_kernel.abi3.so").write_bytes(whole[:20_000])
    done = doctor("--json", path=copy)
    assert done.returncode == 1, done.stderr
    (fault,) = json.loads(done.stdout)["broken"]
    assert "the native image kernel: " in fault
    assert "ends the process: killed by SIG" in fault or "cannot be loaded" in fault
