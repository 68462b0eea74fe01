"""The hook that we offer, run by the real pre-commit in a scratch repository.

pre-commit would build an environment from our repository; here the installed program stands in
for it, and everything else of the hook is as published.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
SCRIPTS = Path(sys.executable).parent
PRE_COMMIT = SCRIPTS / "pre-commit"
(HOOK,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))

needs_pre_commit = pytest.mark.skipif(
    not PRE_COMMIT.exists(), reason="pre-commit (group check) is not installed"
)


def _environment(repository: Path) -> dict[str, str]:
    """Leave out what a surrounding git hook sets, and every setting of the user."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return kept | {
        "PATH": f"{SCRIPTS}:{os.environ['PATH']}",
        "PRE_COMMIT_HOME": str(repository.parent / "pre-commit-home"),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
    }


def _run(repository: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=repository,
        env=_environment(repository),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository that has our hook configured."""
    folder = tmp_path / "repository"
    folder.mkdir()
    hook: dict[str, Any] = HOOK | {"language": "system"}
    configuration = {"repos": [{"repo": "local", "hooks": [hook]}]}
    # JSON is YAML.
    (folder / ".pre-commit-config.yaml").write_text(json.dumps(configuration))
    assert _run(folder, "git", "init", "-q").returncode == 0
    return folder


def _run_hook(repository: Path) -> subprocess.CompletedProcess[str]:
    assert _run(repository, "git", "add", "-A").returncode == 0
    return _run(repository, str(PRE_COMMIT), "run", "--all-files")


def test_the_hook_installs_by_itself_and_takes_profiles_only() -> None:
    assert HOOK["id"] == "kimi-serve-lint"
    assert HOOK["language"] == "python"
    taken = [
        name
        for name in ("a.kimi-serve.yaml", "deploy/b.kimi-serve.yml", "kimi-serve.yaml", "c.yaml")
        if re.search(HOOK["files"], name)
    ]
    assert taken == ["a.kimi-serve.yaml", "deploy/b.kimi-serve.yml"]


@needs_pre_commit
def test_the_hook_passes_what_is_clean(repository: Path) -> None:
    (repository / "a.kimi-serve.yaml").write_text("log: {level: debug}\n")
    (repository / "other.yaml").write_text("wroker: 1\n")
    result = _run_hook(repository)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "Passed" in result.stdout


@needs_pre_commit
def test_the_hook_fails_with_the_finding(repository: Path) -> None:
    (repository / "deploy").mkdir()
    (repository / "deploy" / "a.kimi-serve.yml").write_text("tokenizer: {wroker_num: 8}\n")
    result = _run_hook(repository)
    assert result.returncode == 1, result.stdout + result.stderr
    assert "deploy/a.kimi-serve.yml:1:13: error KS101" in result.stdout


@needs_pre_commit
def test_the_hook_has_nothing_to_do_without_profiles(repository: Path) -> None:
    (repository / "other.yaml").write_text("wroker: 1\n")
    result = _run_hook(repository)
    assert result.returncode == 0
    assert "Skipped" in result.stdout


@needs_pre_commit
def test_pre_commit_accepts_the_manifest() -> None:
    result = _run(ROOT, str(PRE_COMMIT), "validate-manifest", ".pre-commit-hooks.yaml")
    assert result.returncode == 0, result.stdout + result.stderr
