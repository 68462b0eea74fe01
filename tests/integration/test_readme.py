"""What the README shows is run, and its output compared; `...` stands for anything."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from integration_server import RunningServer

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
# `make` builds virtual environments: CI runs both targets from a clean clone instead.
CONSOLE = [
    block
    for block in re.findall(r"```console\n(.*?)```", README, re.DOTALL)
    if not block.startswith("$ make ")
]
PYTHON = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def pattern_of(lines: list[str]) -> re.Pattern[str]:
    """Match the shown lines, `...` being any text (a whole line of it any number of lines)."""
    parts = [
        r"(?:.*\n)*" if line == "..." else r".*".join(map(re.escape, line.split("..."))) + r"\n"
        for line in lines
    ]
    return re.compile("".join(parts))


def test_there_is_something_to_run() -> None:
    assert len(CONSOLE) >= 3
    assert len(PYTHON) == 1


@pytest.mark.parametrize("block", CONSOLE, ids=[block.split("\n")[0][2:40] for block in CONSOLE])
def test_console_block(block: str, tmp_path: Path) -> None:
    lines = block.splitlines()
    commands = [line[2:] for line in lines if line.startswith("$ ")]
    shown = [line for line in lines if not line.startswith("$ ")]
    scripts = Path(sys.executable).parent
    env = os.environ | {"PATH": f"{scripts}:{os.environ['PATH']}", "TMPDIR": str(tmp_path)}
    result = subprocess.run(
        ["bash", "-c", "\n".join(commands)],
        cwd=ROOT,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert pattern_of(shown).search(result.stdout), result.stdout


@pytest.mark.parametrize("block", PYTHON)
def test_python_block(block: str, server: RunningServer) -> None:
    code = block.replace("http://127.0.0.1:30000", server.url)
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
