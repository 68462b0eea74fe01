"""The step of the example workflow does what the workflow counts on."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOW = ROOT / "examples" / "github" / "lint.yml"
(STEP,) = [
    step["run"]
    for step in yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))["jobs"]["lint"]["steps"]
    if "kimi-serve lint" in step.get("run", "")
]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository that holds our examples."""
    shutil.copytree(ROOT / "examples" / "profiles", tmp_path / "deploy")
    _run(tmp_path, "git init -q && git add -A")
    return tmp_path


def _run(folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    env = kept | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    # As the runner does: bash -e -o pipefail.
    return subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", script],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )


def _results(folder: Path) -> list[dict[str, Any]]:
    document = json.loads((folder / "kimi-serve.sarif").read_text(encoding="utf-8"))
    results: list[dict[str, Any]] = document["runs"][0]["results"]
    return results


def test_clean_profiles_pass(repository: Path) -> None:
    result = _run(repository, STEP)
    assert result.returncode == 0, result.stdout + result.stderr
    assert _results(repository) == []


def test_a_warning_fails_and_is_in_both_outputs(repository: Path) -> None:
    (repository / "deploy" / "open.kimi-serve.yaml").write_text("server: {host: 0.0.0.0}\n")
    _run(repository, "git add -A")
    result = _run(repository, STEP)
    assert result.returncode != 0
    assert "deploy/open.kimi-serve.yaml:1:16: warning KS506" in result.stdout
    (found,) = _results(repository)
    place = found["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "deploy/open.kimi-serve.yaml"
