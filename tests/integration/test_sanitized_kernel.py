"""The kernel's C under address and undefined-behaviour sanitizers, on random jobs.

`make sanitize` runs many more, and the kernel's own tests with Python besides.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NATIVE = ROOT / "preprocess" / "native"
ROUNDS = 150
FLAGS = (
    "-std=c11", "-O1", "-g", "-ffp-contract=off", "-fno-omit-frame-pointer",
    "-fsanitize=address,undefined", "-fno-sanitize-recover=all",
)  # fmt: skip


def _compile(compiler: str, source: Path, out: Path) -> subprocess.CompletedProcess[str]:
    kernel = [path for path in NATIVE.glob("*.c") if path.name != "module.c"]
    command = [compiler, *FLAGS, str(source), *map(str, kernel), "-o", str(out), "-lm"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> str:
    name = os.environ.get("CC", "cc")
    if shutil.which(name) is None:
        pytest.skip(f"no C compiler ({name})")
    folder = tmp_path_factory.mktemp("sanitizers")
    empty = folder / "empty.c"
    empty.write_text("int main(void) { return 0; }\n")
    done = subprocess.run(
        [name, *FLAGS, str(empty), "-o", str(folder / "empty")], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip(f"{name} has no sanitizers")
    return name


def test_random_jobs(compiler: str, tmp_path: Path) -> None:
    program = tmp_path / "fuzz"
    built = _compile(compiler, ROOT / "tests" / "fuzz" / "kernel_fuzz.c", program)
    assert built.returncode == 0, built.stderr
    done = subprocess.run(
        [str(program), "1", str(ROUNDS)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{ROUNDS} rounds, 0 faults" in done.stdout
