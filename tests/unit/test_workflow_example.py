"""The GitHub workflow that people copy: valid, and with the steps that make it of use."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
import yaml

WORKFLOW = Path(__file__).parents[2] / "examples" / "github" / "lint.yml"


def test_github_would_accept_it(capsys: pytest.CaptureFixture[str]) -> None:
    reason = "check-jsonschema (group check) is not installed"
    pytest.importorskip("check_jsonschema", reason=reason)
    command: Any = importlib.import_module("check_jsonschema.cli.main_command")
    with pytest.raises(SystemExit) as ended:
        command.main(["--builtin-schema", "vendor.github-workflows", str(WORKFLOW)])
    assert ended.value.code == 0, capsys.readouterr().out


def test_findings_are_uploaded_when_lint_fails() -> None:
    steps = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))["jobs"]["lint"]["steps"]
    (lint,) = [step["run"] for step in steps if "kimi-serve lint" in step.get("run", "")]
    (upload,) = [step for step in steps if "upload-sarif" in step.get("uses", "")]
    assert "--format concise -o -" in lint
    assert f"--format sarif -o {upload['with']['sarif_file']}" in lint
    assert upload["if"] == "always()"
