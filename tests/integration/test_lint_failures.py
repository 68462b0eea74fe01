"""What lint leaves on standard output and in files when the run itself fails: exit code 2."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

MAIN = "from kimi_serve.launcher.cli import main; main()"
FINDING = "tokenizer: {wroker_num: 3}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "p.yaml").write_text(FINDING)
    (tmp_path / "folder").mkdir()
    return tmp_path


def run(folder: Path, *argv: str, shell: str = '"$@"') -> subprocess.CompletedProcess[str]:
    command = ["bash", "-c", shell, "lint", sys.executable, "-P", "-c", MAIN, "lint", *argv]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--format", "json", "--bogus", "p.yaml"], "bogus"),
        (["--format=json", "p.yaml", "--fail-on", "never", "--engine", "tgi"], "--engine"),
        (["--format", "json"], "FILE"),
        (["p.yaml", "--format", "json", "-o"], "requires an argument"),
        (["p.yaml", "--format", "json", "--output"], "requires an argument"),
        (["p.yaml", "--format", "json", "-o", "/nonexistent/dir/x"], "/nonexistent/dir/x"),
        (["p.yaml", "--format", "json", "-o", "folder"], "folder"),
        (["absent.yaml", "--format", "json"], "absent.yaml"),
        (["folder", "--format", "json"], "folder"),
        (["p.yaml", "--format", "json", "--baseline", "absent"], "absent"),
        (["p.yaml", "--format", "json", "--write-baseline", "folder"], "folder"),
        (["p.yaml", "--format", "json", "--env-file", "absent"], "absent"),
        (["p.yaml", "--format", "JSON"], "JSON"),
        (["p.yaml", "--format", "json", "-o", "-", "--format", "bogus", "-o", "b"], "bogus"),
    ],
)
def test_the_document_says_what_failed(folder: Path, argv: list[str], said: str) -> None:
    result = run(folder, *argv)
    assert result.returncode == 2, result
    document = json.loads(result.stdout)
    assert said in document["errors"][0]["message"]
    assert document["summary"]["exit_code"] == 2
    assert said in result.stderr


def test_findings_are_kept_where_only_the_writing_fails(folder: Path) -> None:
    argv = ("p.yaml", "--format", "json", "-o", "a.json", "--format", "sarif", "-o", "no/b.sarif")
    result = run(folder, *argv)
    assert result.returncode == 2
    written = json.loads((folder / "a.json").read_text())
    (sarif,) = json.loads(result.stdout)["runs"]
    assert [item["id"] for item in written["findings"]] == ["KS101"]
    assert [item["ruleId"] for item in sarif["results"]] == ["KS101"]
    assert written["summary"]["exit_code"] == 2
    assert "no/b.sarif" in written["errors"][0]["message"]
    assert not sarif["invocations"][0]["executionSuccessful"]


def test_a_document_does_not_follow_another_on_standard_output(folder: Path) -> None:
    argv = ("p.yaml", "--format", "concise", "-o", "-", "--format", "json", "-o", "no/b.json")
    result = run(folder, *argv)
    assert result.returncode == 2
    assert result.stdout.startswith("p.yaml:1:13: error KS101")
    assert result.stdout.count("\n") == 1


@pytest.mark.parametrize("format", ["json", "sarif", "junit", "github"])
def test_pasted_characters_are_findings(folder: Path, format: str) -> None:
    result = run(folder, "p.yaml", "\u2013\u2013format", format, "\u2013\u2013fail-on", "never")
    assert result.returncode == 2
    assert "KS006" in result.stderr
    if format == "json":
        found = json.loads(result.stdout)["findings"]
        assert {(item["id"], item["profile"]) for item in found} == {("KS006", "p.yaml")}
        assert found[0]["origin"]["kind"] == "cli"
    elif format == "sarif":
        (sarif,) = json.loads(result.stdout)["runs"]
        assert {item["ruleId"] for item in sarif["results"]} == {"KS006"}
        assert sarif["tool"]["driver"]["rules"][0]["id"] == "KS006"
    elif format == "junit":
        root = ElementTree.fromstring(result.stdout.encode())
        assert {case.get("type") for case in root.iter("failure")} == {"error KS006"}
    else:
        assert result.stdout.startswith("::error title=kimi-serve (KS006)::")


@pytest.mark.parametrize(
    "argv",
    [
        ["p.yaml", "--format", "json", "-o", "p.yaml"],
        ["p.yaml", "--format", "json", "-o", "x", "--format", "sarif", "-o", "./x"],
        ["--format", "json", "-o", "p.yaml"],
        ["p.yaml", "--format", "json", "-o", "b", "--write-baseline", "b"],
        ["-", "--format", "json", "-o", "p.yaml"],
    ],
)
def test_no_report_overwrites_another_or_a_profile(folder: Path, argv: list[str]) -> None:
    result = run(folder, *argv, shell='"$@" < p.yaml')
    assert result.returncode == 2
    assert (folder / "p.yaml").read_text() == FINDING


def test_devices_take_any_number_of_reports(folder: Path) -> None:
    argv = ("--format", "json", "-o", "/dev/null", "--format", "sarif", "-o", "/dev/null")
    assert run(folder, "p.yaml", *argv).returncode == 1


@pytest.mark.parametrize(
    ("shell", "code"),
    [('"$@" >/dev/full', 2), ('"$@" >&-', 2), ('"$@" | true; exit ${PIPESTATUS[0]}', None)],
)
def test_standard_output_that_takes_nothing(folder: Path, shell: str, code: int | None) -> None:
    result = run(folder, "p.yaml", "--format", "json", shell=shell)
    assert "Traceback" not in result.stderr
    assert "Exception ignored" not in result.stderr
    if code is None:  # the reader may have been there long enough
        assert result.returncode in (1, 141)
    else:
        assert result.returncode == code
        assert "standard output cannot be written" in result.stderr
