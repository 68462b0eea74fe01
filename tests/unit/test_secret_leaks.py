"""A secret in any place of what is given: no output of lint, plan, explain or the log holds it.

Names of files are the one exception: findings could not be found without them.
"""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from plan_factories import make_loaded, make_plan

from kimi_serve.launcher import cli, pipeline
from kimi_serve.launcher.report.explain import explain_text
from kimi_serve.launcher.report.render import log_lines, plan_json, plan_text
from kimi_serve.schemas.errors import KimiServeError
from kimi_serve.schemas.fields import setting_fields

FORMATS = ("full", "concise", "json", "github", "sarif", "junit")
# `@` is a secret without any shape: what stands around it tells. It is repeated where nothing does.
NAMED = (
    "engine: {kind: sglang, args: [--tokenizer-worker-num, '@', --api-key, '@']}",
    "engine: {args: [--api-ke, '@', '@']}\nimage: {dtype: '@'}",
    "engine: {args: ['--api-key=@', '--tp=@']}",
    "engine: {args: '--hf-token @ --tp @'}",
    "engine: {args: [--mm-process-config, '{\"api_key\": \"@\"}', '--x=@']}",
    "engine: {env: {HF_TOKEN: '@', '@': '1', SGLANG_X: '@'}}",
    "engine: {env: {HEADER: 'Authorization: Bearer @'}}\nlog: {level: '@'}",
    "engine: {env: [{name: HF_TOKEN, value: '@'}, '@']}",
    "engine: {env: 'HF_TOKEN=@'}",
    "model: {path: 'https://me:@@host/x'}\nlog: {level: '@'}",
    "media: {allowed_domains: ['https://cdn.example.org/x?token=@', 'me:@@host:1']}",
    "media: {allowed_local_dirs: ['/x?a=1&api_key=@']}\nimage: {dtype: '@'}",
    "server: {api_key: '@'}\n'@': 1",
    "server: {api_key: {'@'}, '@': 1}",
    "server: {api_key: ['@']}\nlog: {format: ['@']}",
    "server: {api_key: &@ x}\nlog: {level: '@'}",
    "server: {api_key: !@ x}\nlog: {level: '@'}",
    "server: {api_key: {env: '@'}}\nlog: {level: '@'}",
    "server: {api_key: {file: '@'}}\nlog: {level: '@'}",
    "server: {api_key: '@'}\nlog: {level: &@ info}",
    "server: {api_key: '@'}\nlog: {level: !@ info}",
    "server: {api_key: '@'}\nlog: {level: *@}",
    "server: {api_key: '@'}\nextends: '@.yaml'",
    "server: {api_key: '@'}\nlog: {level: info, level: '@'} # kimi-serve: ignore[@] @",
    "server: {api_key: '@'}\nlog: {level: info\n # @",
    "server: {api_keyy: '@', port: '@'}",
    "server: {api_key: '@', port: [\n  '@', 1]}\nserver: api_key=@",
    "log: {levle: info} # api_key: @\nimage: {dtype: '@'}",
    "engine: {args: [--api-key, >-\n  @\n  ]}\nlog: {level: '@'}",
)
# These load, so that a plan is made of them.
LOADED = (
    "engine: {args: [--api-key, '@', --tp, '@'], env: {HF_TOKEN: '@', '@': '@', X: '@'}}",
    "engine: {kind: sglang, args: [--api-key, '@', --served-model-name, '@']}\nmodel: {path: m}",
    "engine: {kind: vllm, env: {HF_TOKEN: '@', X: '@'}}\nmodel: {served_name: '@'}",
    "engine: {kind: sglang, env: {X: 'sk-@'}, args: ['--x=hf_@']}\nmodel: {served_name: 'sk-@'}",
    "engine: {args: ['{\"password\": \"@\"}', '@']}\nmedia: {allowed_domains: ['@']}",
    "model: {served_name: 'https://me:@@host/x', revision: '@'}",
)
# `@` is a secret that is known by its shape.
SHAPED = (
    "'@': 1",
    "server: {'@': 1}",
    "server:\n  @: 1",
    "'@': {path: x}",
    "log: {level: '@'}",
    "log: {level: info, level: '@'}",
    "log: {level: &@ info, format: *@}",
    "log: {level: !@ infoo}",
    "log: {levell: info} # @",
    "log: {level: infoo}  # kimi-serve: ignore[@] @",
    "extends: '@'",
    "extends: './@.yaml'",
    "model: {path: '@', tokenizer_path: './@'}",
    "engine: {kind: sglang, args: ['@', '--@', '--tp=@', '-@']}",
    "engine: {kind: sglang, env: {'@': '1', SGLANG_X: '@'}}",
    'engine: {args: [\'{"a": ["@"]}\']}',
    "media: {allowed_domains: ['@']}",
    "gpu: {total_mib: '@'}",
    "server: {api_key: {file: '/run/@'}, host: '@'}",
    "server: {port: [@, {",
)
VARIABLES: tuple[Mapping[str, str], ...] = (
    {"HF_TOKEN": "@", "KIMI_SERVE_LOG__LEVEL": "@"},
    {"KIMI_SERVE_SERVER__API_KEY": "@", "KIMI_SERVE_@": "1", "KIMI_SERVE_IMAGE__DTYPE": "@"},
    {"KIMI_SERVE_ENGINE__ARGS": '["--api-key", "@", "--tp", "@"]', "KIMI_SERVE_LOG__FORMAT": "@"},
    {"KIMI_SERVE_ENGINE__ARGS": "--api-key @", "KIMI_SERVE_GPU__TOTAL_MIB": "@"},
    {"KIMI_SERVE_ENGINE__ENV": '{"HF_TOKEN": "@"}', "SGLANG_FORCE_CPU_IMAGE_PREPROCESSING": "@"},
    {"SOME_PASSWORD": "@", "SGLANG_@": "1", "KIMI_SERVE_MODEL__PATH": "./@"},
)
ARGUMENTS = (
    ("--set", "server.api_key=@", "--log-level", "@"),
    ("--set", "server.@=1", "--api-key", "@"),
    ("--set", "engine.args=[--api-key, '@']", "--set", "log.level=@"),
    ("--set", "engine.env={HF_TOKEN: '@', X: '@'}", "--set", "image.dtype=@"),
    ("--engine-args", '["--api-key", "@"]', "--image-dtype", "@"),
    ("--api-key", "@", "--model-path", "@"),
)
LETTERS = "abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789"
# With a digit, so that no word of a message is one by chance.
RANDOM = st.builds("{0}7{1}".format, *(st.text(LETTERS, min_size=6, max_size=24) for _ in "12"))
# A whole command a time: what is drawn matters little, and is not worth shrinking.
few = settings(max_examples=2, deadline=None, phases=(Phase.explicit, Phase.generate))
PREFIXES = ("sk-", "hf_", "ghp_", "AKIA", "github_pat_", "xoxb-", "glpat-")


@pytest.fixture(scope="module", autouse=True)
def _no_variables() -> Iterator[None]:
    """Leave nothing of this machine's environment to the commands."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("GITHUB_ACTIONS", "KIMI_SERVE_LINT_FORMAT"):
            patch.delenv(name, raising=False)
        yield


def run(*argv: str, env: Mapping[str, str] | None = None) -> str:
    """Run a command; gives all it wrote to standard output and error."""
    out = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (env or {}).items():
            patch.setenv(name, value)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            code = cli.run(list(argv))
    assert code in (0, 1, 2, 3), out.getvalue()
    return out.getvalue()


def lint_outputs(folder: Path, *argv: str, env: Mapping[str, str] | None = None) -> Iterator[str]:
    """Give what lint says of p.yaml, in every format and mode."""
    profile = str(folder / "p.yaml")
    given = ("lint", profile, "--select", "KS", *argv)
    outputs = [f"--format={name}" for name in FORMATS]
    outputs += [f"-o{folder / name}" for name in FORMATS]
    yield run(*given, *outputs, env=env)
    for name in FORMATS:
        file = folder / name
        if file.exists():
            yield file.read_text(encoding="utf-8")
            file.unlink()
    yield run(*given, "--diff", env=env)
    yield run(*given, "--statistics", env=env)
    yield run(*given, "--write-baseline", str(folder / "base"), env=env)
    if (folder / "base").exists():
        yield (folder / "base").read_text(encoding="utf-8")


def plan_outputs(folder: Path, *argv: str, env: Mapping[str, str] | None = None) -> Iterator[str]:
    """Give what plan and explain say of p.yaml, and the log of a start."""
    profile = str(folder / "p.yaml")
    yield run("--profile", profile, *argv, "plan", env=env)
    yield run("--profile", profile, *argv, "plan", "--json", env=env)
    yield run("--profile", profile, *argv, "plan", "--format", "shell", env=env)
    for more in ((), ("--json",)):
        compared = ("plan", "--compare", "sglang,vllm", *more)
        yield run("--profile", profile, *argv, *compared, env=env)
    for path in ("engine.args", "engine.env", "log.level"):
        yield run("--profile", profile, *argv, "explain", path, env=env)
    try:
        loaded = pipeline.load([Path(profile)], {}, (), dict(env or {}))
        lines = log_lines(pipeline.make_plan(loaded, {}))
    except KimiServeError as error:
        yield f"{error} {error.message} {error.hint}"
    else:
        yield from (line for _, line in lines)


def outputs(profile: str, *argv: str, env: Mapping[str, str] | None = None) -> list[str]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "p.yaml").write_text(profile + "\n", encoding="utf-8")
        lint_env = ("--env",) if env else ()
        return [
            *lint_outputs(folder, *lint_env, *argv, env=env),
            *plan_outputs(folder, *argv, env=env),
        ]


def assert_hidden(secret: str, said: list[str]) -> None:
    assert any(said), "nothing was said at all"
    for text in said:
        assert secret not in text, text


def each(*templates: str) -> st.SearchStrategy[str]:
    return st.sampled_from(templates)


@pytest.mark.parametrize("template", [*NAMED, *LOADED])
@given(secret=RANDOM)
@few
def test_a_secret_that_is_told_by_its_name(template: str, secret: str) -> None:
    assert_hidden(
        secret, outputs(template.replace("@host", "\0").replace("@", secret).replace("\0", "@host"))
    )


@pytest.mark.parametrize("template", SHAPED)
@given(secret=RANDOM, prefix=each(*PREFIXES))
@few
def test_a_secret_that_is_told_by_its_shape(template: str, prefix: str, secret: str) -> None:
    assert_hidden(secret, outputs(template.replace("@", prefix + secret)))


@pytest.mark.parametrize("variables", VARIABLES)
@given(secret=RANDOM)
@few
def test_a_secret_in_variables(variables: Mapping[str, str], secret: str) -> None:
    env = {
        name.replace("@", f"sk-{secret}"): text.replace("@", secret)
        for name, text in variables.items()
    }
    assert_hidden(
        secret, outputs(f"log: {{level: '{secret}'}}\nimage: {{dtype: float32}}", env=env)
    )


@pytest.mark.parametrize("variables", VARIABLES)
@given(secret=RANDOM)
@few
def test_a_secret_in_an_env_file(variables: Mapping[str, str], secret: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "p.yaml").write_text(f"log: {{level: '{secret}'}}\n", encoding="utf-8")
        lines = [f"{key}={text}".replace("@", secret) for key, text in variables.items()]
        lines = [line.replace(f"_{secret}", f"_sk-{secret}") for line in lines]
        (folder / "e").write_text("\n".join(lines), encoding="utf-8")
        assert_hidden(secret, [*lint_outputs(folder, "--env-file", str(folder / "e"))])


@pytest.mark.parametrize("arguments", ARGUMENTS)
@given(secret=RANDOM)
@few
def test_a_secret_on_the_command_line(arguments: tuple[str, ...], secret: str) -> None:
    argv = [
        text.replace("server.@", f"server.sk-{secret}").replace("@", secret) for text in arguments
    ]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "p.yaml").write_text(f"log: {{format: '{secret}'}}\n", encoding="utf-8")
        only_set = set(argv[::2]) == {"--set"}
        said = [*lint_outputs(folder, *argv)] if only_set else []
        assert_hidden(secret, [*said, *plan_outputs(folder, *argv)])


@given(secret=RANDOM)
@few
def test_a_parent_and_other_files_of_the_run(secret: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = f"engine: {{args: [--api-key, '{secret}']}}\n"
        (folder / "base.yaml").write_text(text, encoding="utf-8")
        text = f"extends: base.yaml\nlog: {{level: '{secret}'}}\n"
        (folder / "p.yaml").write_text(text, encoding="utf-8")
        (folder / "q.yaml").write_text(f"image: {{dtype: '{secret}'}}\n", encoding="utf-8")
        others = (str(folder / "q.yaml"),)
        assert_hidden(secret, [*lint_outputs(folder, *others), *plan_outputs(folder)])


@given(secret=RANDOM)
@few
def test_escapes_and_private_keys(secret: str) -> None:
    escaped = f"\\x{ord(secret[0]):02x}{secret[1:]}"
    pem = f"-----BEGIN PRIVATE KEY-----\n  {secret}{secret}\n  -----END PRIVATE KEY-----"
    for profile in (
        f'engine: {{args: [--api-key, "{escaped}"]}}\n'
        f'log: {{level: "{escaped}", format: {secret}}}',
        f"engine: {{env: {{X: |\n  {pem}\n  }}}}",
        f"log:\n  level: |\n  {pem}\n",
        f"engine:\n  env:\n    CERT: |\n      {pem.replace(chr(10), chr(10) + '    ')}\n",
        f"log: {{level: '{'x' * 70} {secret}'}}\nengine: {{args: [--api-key, {secret}]}}",
    ):
        said = outputs(profile)
        assert_hidden(secret[1:], said)


@given(secret=RANDOM)
@few
def test_the_plan_of_settings_that_repeat_a_secret(secret: str) -> None:
    settings = {
        "server.api_key": secret,
        "model.served_name": secret,
        "model.path": f"https://me:{secret}@host/m",
        "media.allowed_domains": [secret],
        "engine.env": {"A": secret, secret: "b"},
        "engine.args": ("--tokenizer-worker-num", secret),
    }
    plan = make_plan(settings)
    said = [plan_text(plan), json.dumps(plan_json(plan)), *(line for _, line in log_lines(plan))]
    said += [explain_text(make_loaded(settings), path) for path in setting_fields()]
    assert_hidden(secret, said)


@pytest.mark.parametrize(
    "argv",
    [
        ("lint", "--sk-@", "p.yaml"),
        ("lint", "/missing/p.yaml", "--format", "sk-@"),
        ("explain", "sk-@"),
        ("sk-@",),
    ],
)
def test_an_odd_command_line(argv: tuple[str, ...]) -> None:
    secret = "Xq7vTRUSTNO1zzzz"
    assert_hidden(secret, [run(*(word.replace("@", secret) for word in argv))])


def test_what_is_no_secret_stays_readable() -> None:
    profile = (
        "server: {api_key: {env: KEY_OF_SERVER}, prot: 1}\n"
        "engine: {kind: sglang, args: [--max-total-tokens, '4096', --api-key, '8080', --tp, '8']}\n"
        "tokenizer: {wroker_num: 16}  # one token costs nothing\n"
        "log: {level: 8080x, format: loud}\n"
    )
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "p.yaml").write_text(profile, encoding="utf-8")
        shown = run("lint", str(Path(name) / "p.yaml"))
    for text in (
        *("unknown key `prot`", "{env: KEY_OF_SERVER}", "did you mean `worker_num`?"),
        *("'8080x'", "one of text, json, not 'loud'", "tokenizer: {wroker_num: 16}"),
    ):
        assert text in shown, shown
    plan = make_plan(
        {"engine.args": ("--max-total-tokens", "4096", "--api-key", "no", "--x", "no")}
    )
    (args,) = (row for row in plan_json(plan)["settings"] if row["path"] == "engine.args")
    assert args["value"] == ["--max-total-tokens", "4096", "--api-key", "***", "--x", "no"]
