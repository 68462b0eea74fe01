"""The printed forms of an engine's launch: the pasted line starts the same, no secret is shown."""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck
from hypothesis import given as for_all
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from plan_factories import make_loaded, make_plan

from kimi_serve.launcher.cli import run
from kimi_serve.launcher.compare import compare, engine_names, for_engine, left_out
from kimi_serve.launcher.machine.engine_install import find_install
from kimi_serve.launcher.options import given_flags, given_set_items
from kimi_serve.launcher.plan_command import plan as plan_command
from kimi_serve.launcher.report.compare import compare_json, compare_text
from kimi_serve.launcher.report.render import log_lines, plan_json, plan_text
from kimi_serve.launcher.report.shell import shell_line
from kimi_serve.launcher.sources.load import load_settings
from kimi_serve.preprocess.checkpoint_files.locate import BUNDLED
from kimi_serve.schemas.engine_launch import EngineInstall
from kimi_serve.schemas.errors import ConfigError
from kimi_serve.schemas.provenance import Origin

KEY = "sehr-geheim-7"
TOKEN = "noch-geheimer-8"
SECRETS: dict[str, Any] = {
    "engine.kind": "sglang",
    "server.api_key": KEY,
    "engine.args": ["--admin-api-key", TOKEN, "--json-model-override-args", '{"password": "drei"}'],
    "engine.env": {"HF_TOKEN": TOKEN, "lower_secret": TOKEN},
}
_DUMP = """#!{python}
import json, os, sys
print(json.dumps([sys.argv, dict(os.environ)]))
"""


@pytest.fixture(scope="module")
def fake(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An interpreter that says what it was started with."""
    path = tmp_path_factory.mktemp("fake a") / "py'thon"
    path.write_text(_DUMP.format(python=sys.executable), encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def run_in_sh(line: str, env: dict[str, str]) -> tuple[list[str], dict[str, str]]:
    done = subprocess.run(["sh", "-c", line], env=env, capture_output=True, text=True, check=True)
    argv, found = json.loads(done.stdout)
    return argv, found


TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8)


@for_all(
    kind=st.sampled_from(["sglang", "vllm"]),
    name=TEXTS,
    domains=st.lists(st.sampled_from(["a.b", "*.c", "$(x)"]), max_size=2).map(tuple),
    value=st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8),
)
@hypothesis_settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_the_shell_line_starts_exactly_the_plan(
    fake: str, kind: str, name: str, domains: tuple[str, ...], value: str
) -> None:
    inherited = {"PATH": os.environ["PATH"], "SGL_FORCE_CPU_IMAGE_PREPROCESSING": "1"}
    inherited |= {"KIMI_SERVE_SERVER__API_KEY": KEY, "LC_ALL": "C.UTF-8"}
    given = {
        "engine.kind": kind,
        "model.served_name": name,
        "server.api_key": KEY,
        "image.force_cpu_preprocessing": True,
        "media.allowed_domains": domains,
        "engine.env": {"PLAIN": value, "HF_TOKEN": TOKEN},
    }
    plan = make_plan(given, env=inherited, install=EngineInstall(fake, None))
    assert plan.launch is not None
    line = shell_line(plan)
    assert KEY not in line
    assert TOKEN not in line
    argv, env = run_in_sh(line, inherited | {"HF_TOKEN": TOKEN})
    assert argv == list(plan.launch.argv())
    expected = plan.launch.environment(inherited)
    assert {key: env.get(key) for key in expected} == expected
    assert "KIMI_SERVE_SERVER__API_KEY" not in env
    assert kind == "vllm" or "SGL_FORCE_CPU_IMAGE_PREPROCESSING" not in env


def test_secrets_of_engine_args_are_names_that_a_shell_fills_in(fake: str) -> None:
    plan = make_plan(SECRETS, install=EngineInstall(fake, None))
    assert plan.launch is not None
    env = {"PATH": os.environ["PATH"], "KIMI_SERVE_SERVER__API_KEY": KEY}
    env |= {"ADMIN_API_KEY": TOKEN, "JSON_MODEL_OVERRIDE_ARGS": '{"password": "drei"}'}
    argv, _ = run_in_sh(shell_line(plan), env | {"HF_TOKEN": TOKEN, "lower_secret": TOKEN})
    assert argv == list(plan.launch.argv())


def test_no_printed_form_shows_a_secret() -> None:
    plan = make_plan(SECRETS)
    forms = [
        *(plan_text(plan), json.dumps(plan_json(plan)), shell_line(plan), repr(plan.launch)),
        *(line for _, line in log_lines(plan)),
        compare_text({"sglang": plan}, {}),
        json.dumps(compare_json({"sglang": plan}, {"sglang": ()})),
    ]
    for text in forms:
        assert not [secret for secret in (KEY, TOKEN, "drei") if secret in text]
    assert '--api-key "${KIMI_SERVE_SERVER__API_KEY}"' in shell_line(plan)
    assert plan.launch is not None
    assert set(plan.launch.secrets()) == {KEY, TOKEN, '{"password": "drei"}'}


def test_the_key_is_shown_by_the_variable_that_holds_it(tmp_path: Path) -> None:
    profile = tmp_path / "p.yaml"
    profile.write_text("server: {api_key: {env: MY_KEY}}\n", encoding="utf-8")
    assert load_settings([profile], {"MY_KEY": KEY}).references == {"server.api_key": "MY_KEY"}
    own = {"KIMI_SERVE_SERVER__API_KEY": KEY}
    name = "KIMI_SERVE_SERVER__API_KEY"
    assert load_settings([profile], own | {"MY_KEY": KEY}).references == {"server.api_key": name}
    assert load_settings(env={}).references == {}


@pytest.mark.parametrize(
    "text",
    [
        "tokenizer: {worker_num: 16}\nimage: {force_cpu_preprocessing: true}\n",
        "image: {formats: [png, jpeg], background: '#fff'}\nmodel: {revision: null}\n",
        "media: {allowed_domains: [a.b], timeout_s: 2.5}\nserver: {api_key: {env: MY_KEY}}\n",
        "engine: {args: ['$${X}'], env: {A: 'b c'}}\ngpu: {ids: []}\n",
    ],
)
def test_the_line_of_the_built_in_workers_gives_the_same_settings(
    tmp_path: Path, text: str
) -> None:
    profile = tmp_path / "p.yaml"
    profile.write_text(text, encoding="utf-8")
    env = {"MY_KEY": KEY}
    loaded = load_settings([profile], env)
    made = dataclasses.replace(make_plan(), values=loaded.values, references=loaded.references)
    line = shell_line(made)
    assert KEY not in line
    words = shlex.split(line)[1:]
    with plan_command.make_context("plan", list(words)) as ctx:
        again = load_settings((), env, given_flags(ctx), given_set_items(ctx))
    assert again.settings == loaded.settings


def test_an_interpreter_is_asked_for_its_package(tmp_path: Path) -> None:
    assert "no package sglang" in find_install(None, "sglang").problem
    assert find_install("no-such-python", "vllm").problem == "no-such-python is not in PATH"
    assert "cannot be run" in find_install(str(tmp_path / "python"), "vllm").problem
    assert find_install("/bin/true", "vllm") == EngineInstall("/bin/true", None)
    package = tmp_path / "vllm-0.33.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.33.0\n")
    env = dict(os.environ) | {"PYTHONPATH": str(tmp_path)}
    found = find_install(sys.executable, "vllm", env)
    assert (found.version, found.problem) == ("0.33.0", "")
    assert found.python == sys.executable


def test_a_folder_of_the_working_directory_is_no_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sglang").mkdir()
    (tmp_path / "sglang" / "__init__.py").write_text("raise SystemExit(9)\n")
    monkeypatch.chdir(tmp_path)
    assert find_install(None, "sglang").problem


def test_settings_of_one_engine_are_left_out_of_the_other() -> None:
    given = {"engine.kind": "sglang", "engine.args": ["--tp", "8"], "engine.version": "0.5.23"}
    loaded = make_loaded(given | {"tokenizer.worker_num": 4})
    assert left_out(loaded, "sglang") == ()
    assert for_engine(loaded, "sglang") is loaded
    assert left_out(loaded, "vllm") == ("engine.args", "engine.version")
    other = for_engine(loaded, "vllm")
    assert other.settings.engine.args == ()
    assert other.origin("engine.kind") == Origin("flag", "--compare")
    assert other.settings.tokenizer.worker_num == 4


def test_engines_side_by_side() -> None:
    loaded = make_loaded(
        {
            "model.path": None,
            "engine.kind": "sglang",
            "engine.args": ["--tp", "8"],
            "tokenizer.worker_num": 4,
        }
    )
    compared = compare(loaded, engine_names("sglang,vllm"), {})
    plans = {each.plan.engine.value: each.plan for each in compared}
    without = {each.plan.engine.value: each.left_out for each in compared}
    text = compare_text(plans, without)
    assert "vllm: engine.args, which are words of another engine" in text
    rows = compare_json(plans, without)["settings"]
    assert rows["tokenizer.worker_num"]["vllm"].startswith("--api-server-count 4")
    assert rows["tokenizer.worker_num"]["sglang"].startswith("--tokenizer-worker-num 4")
    assert rows["engine.args"] == {"sglang": "--tp-size 8", "vllm": "-"}
    changed = compare_json(plans, without, changed_only=True)["settings"]
    assert set(changed) == {"engine.args", "tokenizer.worker_num"}
    assert "server.port  " in text
    assert "server.port  " not in compare_text(plans, without, changed_only=True)
    for wrong in ("sglang", "sglang,sglang", "sglang,none"):
        with pytest.raises(ConfigError):
            engine_names(wrong)


TOO_FEW = ("--engine", "sglang", "--set", 'engine.args=["--tp-size", "8"]', "--gpu-ids", "0,1")


@pytest.mark.parametrize("more", [(), ("--json",), ("--changed",)])
@pytest.mark.parametrize(
    ("flags", "code"),
    [
        ((), 0),
        (("--served-model-name", "a:b"), 2),
        (("--skip-tokenizer-init",), 2),
        (TOO_FEW, 3),
        # What is wrong everywhere is worse than what this machine lacks.
        ((*TOO_FEW, "--skip-tokenizer-init"), 2),
    ],
)
def test_two_plans_are_refused_as_the_worse_of_them_is(
    flags: tuple[str, ...], code: int, more: tuple[str, ...]
) -> None:
    model = ("--model-path", str(BUNDLED), "--trust-remote-code")
    assert run(["plan", *model, *flags, *more, "--compare", "sglang,vllm"]) == code
