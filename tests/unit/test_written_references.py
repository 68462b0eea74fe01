"""What stands for a secret in a printed command: the reference that a person wrote."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from plan_factories import NO_GPU, make_checkpoint, make_plan

from kimi_serve.launcher.report.render import plan_json, plan_text
from kimi_serve.launcher.report.shell import shell_line, shell_warnings
from kimi_serve.launcher.resolver.resolve import resolve
from kimi_serve.launcher.sources.load import load_settings
from kimi_serve.schemas.plan import LaunchPlan
from kimi_serve.schemas.support import load_support

ENV = {"TOK": "geheim-eins-1", "B": "geheim-zwei-2", "AWSK": "geheim-drei-3", "PORT": "8000"}


def plan_of(tmp_path: Path, text: str, **env: str) -> LaunchPlan:
    path = tmp_path / "p.kimi-serve.yaml"
    path.write_text(text, encoding="utf-8")
    found = ENV | env
    loaded = load_settings([path], found)
    return resolve(loaded, make_checkpoint(), NO_GPU, load_support(), found)


def test_the_written_reference_stands_for_a_secret(tmp_path: Path) -> None:
    plan = plan_of(
        tmp_path,
        """
model: {path: ./m, trust_remote_code: true}
engine:
  kind: vllm
  args: [--hf-token, "${TOK}", --api-key, "${TOK}", "x-${B}", --root-path, "/a/${PORT}"]
  env: {HF_TOKEN: "${TOK}", AWS_SECRET_ACCESS_KEY: "pre-${AWSK}", PLAIN: "${PORT}"}
""",
    )
    line = shell_line(plan)
    assert '--hf-token "${TOK}"' in line
    assert '--api-key "${TOK}" x-"${B}"' in line
    assert 'HF_TOKEN="${TOK}"' in line
    assert 'AWS_SECRET_ACCESS_KEY=pre-"${AWSK}"' in line
    assert "--root-path /a/8000" in line
    assert "PLAIN=8000" in line
    assert not list(shell_warnings(plan))
    shown = plan_json(plan)["launch"]
    assert "${TOK}" in shown["argv"]
    assert "x-${B}" in shown["argv"]
    values = {each["name"]: each["value"] for each in shown["variables"]}
    assert values["AWS_SECRET_ACCESS_KEY"] == "pre-${AWSK}"
    for text in (line, plan_text(plan), json.dumps(plan_json(plan)), repr(plan.launch)):
        assert not [secret for secret in ENV.values() if secret in text and secret != "8000"]


def test_what_stands_beside_a_reference_may_be_a_secret_too(tmp_path: Path) -> None:
    plan = plan_of(
        tmp_path,
        """
model: {path: ./m}
engine: {kind: vllm, env: {HF_TOKEN: "hf_abcdefgh12345678${TOK}", MY_PASSWORD: "langesWort9${B}"}}
""",
    )
    line = shell_line(plan)
    assert "abcdefgh" not in line
    assert "langesWort" not in line
    assert 'HF_TOKEN="${HF_TOKEN}"' in line
    assert [each.split()[1] for each in shell_warnings(plan)] == ["HF_TOKEN", "MY_PASSWORD"]


def test_a_release_that_nobody_read_keeps_references_too(tmp_path: Path) -> None:
    text = 'engine: {kind: sglang, version: 0.1.0, args: [--some-api-key, "${TOK}"]}\n'
    plan = plan_of(tmp_path, "model: {path: ./m}\n" + text)
    assert '--some-api-key "${TOK}"' in shell_line(plan)


def test_a_joined_flag_keeps_its_reference(tmp_path: Path) -> None:
    text = 'model: {path: ./m}\nengine: {kind: vllm, args: ["--hf-token=${TOK}"]}\n'
    assert '"${TOK}"' in shell_line(plan_of(tmp_path, text))


def test_a_line_that_repeats_a_secret_is_said_to_be_another_one() -> None:
    key = "geheim-vier-4"
    given = {"engine.kind": "vllm", "server.api_key": key, "engine.env": {"PLAIN": f"a {key}"}}
    plan = make_plan(given)
    assert key not in shell_line(plan)
    assert any("not what would be started" in each for each in shell_warnings(plan))


def test_line_breaks_leave_the_line_and_the_columns_whole() -> None:
    given = {
        "engine.kind": "sglang",
        "engine.args": ["--chat-template", "a\nb'%\\\x1b\n"],
        "engine.env": {"X": "\n"},
    }
    plan = make_plan(given)
    line = shell_line(plan)
    assert "\n" not in line
    assert "\x1b" not in line
    text = plan_text(plan)
    assert "--chat-template $'a\\nb\\'%\\\\\\u001b\\n'" in text
    assert "X=$'\\n'" in text


@pytest.mark.parametrize("text", ["\n", "a\n", "\n\na'%s\\n\t\x1b$b\n", "\u2028\x85", "-n\n", ""])
def test_sh_reads_what_was_quoted_for_it(text: str) -> None:
    plan = make_plan({"engine.kind": "sglang", "engine.env": {"X": text}})
    line = shell_line(plan)
    assert len(line.splitlines()) == 1
    program = "import os, json; print(json.dumps(os.environ['X']))"
    words = line.partition(" python -m ")[0] + f" {sys.executable} -c {shlex.quote(program)}"
    env = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
    done = subprocess.run(["sh", "-c", words], env=env, capture_output=True, check=True)
    assert json.loads(done.stdout) == text


def test_a_line_break_of_a_setting_of_ours_stays_on_the_line() -> None:
    assert "\n" not in shell_line(make_plan({"model.served_name": "a\nb"}))
