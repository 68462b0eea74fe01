"""The folder of a test is its marker; there is no test without one."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).parents[1] / "conftest.py"


def collect(tests: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    shutil.copy(CONFTEST, tests)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", "/dev/null",
         "--rootdir", str(tests), "--collect-only", "-q", *arguments, str(tests)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("place", ["test_a.py", "units/test_a.py"])
def test_an_unknown_folder_is_refused(tmp_path: Path, place: str) -> None:
    path = tmp_path / place
    path.parent.mkdir(exist_ok=True)
    path.write_text("def test_nothing(): pass\n", encoding="utf-8")
    result = collect(tmp_path)
    assert result.returncode == 4
    assert f"{path} must lie in one of the folders unit, " in result.stderr


def test_the_folder_is_the_marker(tmp_path: Path) -> None:
    for folder in ("unit", "golden"):
        (tmp_path / folder).mkdir()
        path = tmp_path / folder / f"test_{folder}.py"
        path.write_text("def test_nothing(): pass\n", encoding="utf-8")
    result = collect(tmp_path, "-m", "golden")
    assert result.returncode == 0, result.stdout
    assert "golden/test_golden.py" in result.stdout
    assert "unit/test_unit.py" not in result.stdout
