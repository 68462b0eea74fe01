"""The prepared script on this host's GPU; skipped with its own reason without one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "run.py"
NO_GPU = 77


@pytest.mark.timeout(380)
def test_the_script_holds_on_this_gpu(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, str(SCRIPT), "--out", str(tmp_path), "--workers", "1,2,4"],
        capture_output=True,
        text=True,
        timeout=370,
        check=False,
    )
    if ran.returncode == NO_GPU:
        pytest.skip(ran.stdout.strip())
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-2000:]
    assert json.loads((tmp_path / "gpu.json").read_text())["holds"] is True
    assert "<svg" in (tmp_path / "report.html").read_text()
