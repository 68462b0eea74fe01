"""`kimi-serve adopt` as a user meets it: what goes where, exit codes, no secret anywhere."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from integration_server import without_settings

SGLANG = ("python", "-m", "sglang.launch_server", "--model-path", "/models/k")


def run(*arguments: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "kimi_serve.launcher", *arguments],
        env=without_settings() | {"NO_COLOR": "1"},
        input=text,
        stdin=None if text is not None else subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_profile_is_on_stdout_and_the_rest_on_stderr(tmp_path: Path) -> None:
    result = run("adopt", "--", "nohup", *SGLANG, "--tokenizer-worker-num", "2")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("# yaml-language-server: $schema=")
    assert "  worker_num: 2  # word 7: --tokenizer-worker-num 2" in result.stdout
    assert "kimi-serve: note: left out (word 1): nohup" in result.stderr
    profile = tmp_path / "p.kimi-serve.yaml"
    profile.write_text(result.stdout, encoding="utf-8")
    assert run("lint", str(profile)).returncode == 0


def test_the_dashes_in_front_of_the_command_may_be_left_out() -> None:
    assert run("adopt", *SGLANG).stdout == run("adopt", "--", *SGLANG).stdout


def test_a_command_in_one_word_is_read_as_a_line() -> None:
    result = run("adopt", "--", f"{' '.join(SGLANG)} --port $PORT")
    assert "${PORT}" in result.stdout


def test_errors_make_the_exit_code_1() -> None:
    result = run("adopt", "--format", "json", "--", "nohup", *SGLANG, "--no-such-flag", "1")
    assert result.returncode == 1
    assert [each["id"] for each in json.loads(result.stderr)["findings"]] == ["KS103"]
    assert "- --no-such-flag" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "text", "said"),
    [
        (("--", "ls"), None, "there is no engine command"),
        ((), "", "there is no command in an empty text"),
        ((), "echo hello\n", "there is no engine command"),
        ((), "a: [\n", "cannot be read"),
        ((), "vllm serve 'x", "has no end"),
        (("--env-file", "/nowhere", "--", *SGLANG), None, "/nowhere cannot be read"),
        (("-o", "/nowhere/x", "--", *SGLANG), None, "cannot be written"),
        (("--", __file__), None, "adopt <"),
    ],
)
def test_what_cannot_be_adopted_is_said(
    arguments: tuple[str, ...], text: str | None, said: str
) -> None:
    result = run("adopt", *arguments, text=text)
    assert result.returncode == 2
    assert said in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


def test_a_file_is_written_and_named_in_findings(tmp_path: Path) -> None:
    out = tmp_path / "x.kimi-serve.yaml"
    text = f"{' '.join(SGLANG)} --host 0.0.0.0 --api-key sk-verysecret1234\n"
    result = run("adopt", "-o", str(out), text=text)
    assert result.stdout == ""
    assert "api_key: {env: KIMI_API_KEY}" in out.read_text(encoding="utf-8")
    assert f"{out}:" in result.stderr
    assert "verysecret" not in result.stderr + out.read_text(encoding="utf-8")


def test_the_profile_does_not_replace_the_script(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(" ".join(SGLANG), encoding="utf-8")
    with script.open() as stdin:
        result = subprocess.run(
            [sys.executable, "-P", "-m", "kimi_serve.launcher", "adopt", "-o", str(script)],
            stdin=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert (result.returncode, "which is read" in result.stderr) == (2, True)
    assert script.read_text(encoding="utf-8") == " ".join(SGLANG)


def test_broken_bytes_are_said() -> None:
    result = subprocess.run(
        [sys.executable, "-P", "-m", "kimi_serve.launcher", "adopt"],
        input=b"vllm serve \xff\n",
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 2
    assert b"byte 11" in result.stderr


@pytest.mark.parametrize("format", ["full", "concise", "json", "github", "sarif", "junit"])
def test_no_format_shows_a_secret(format: str) -> None:
    text = (
        f"HF_TOKEN=hf_secretsecretsecretsecret {' '.join(SGLANG)} --admin-api-key topsecretvalue\n"
    )
    result = run("adopt", "--format", format, text=text)
    assert "secretsecret" not in result.stdout + result.stderr
    assert "topsecretvalue" not in result.stdout + result.stderr


def test_a_relative_path_still_means_the_same_place(tmp_path: Path) -> None:
    (tmp_path / "deploy").mkdir()
    out = tmp_path / "deploy" / "x.kimi-serve.yaml"
    assert run("adopt", "-o", str(out), "--", "vllm", "serve", "./models/k").returncode == 0
    (line,) = (line for line in out.read_text(encoding="utf-8").splitlines() if "path:" in line)
    path = line.split("#")[0].partition(":")[2].strip()
    assert (out.parent / path).resolve() == Path("models/k").resolve()
