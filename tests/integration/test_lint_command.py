"""`kimi-serve lint` and `rule` as CI uses them: exit codes, outputs, files, and no surprises."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kimi_serve.launcher import cli
from kimi_serve.launcher.lint import session
from kimi_serve.schemas.rules import RULES

SECRET = "sk-Xq7vTRUSTNO1zzzz"
CLEAN = "log: {level: info}\n"
FORMATS = ("full", "concise", "json", "github", "sarif", "junit")


@dataclass
class Runner:
    """Runs command lines in a folder and gives what they said."""

    capture: pytest.CaptureFixture[str]

    def __call__(self, *argv: str) -> tuple[int, str, str]:
        self.capture.readouterr()
        code = cli.run(["lint", *argv])
        said = self.capture.readouterr()
        return code, said.out, said.err


@pytest.fixture
def lint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Runner:
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith(("KIMI_SERVE_", "SGLANG_", "SGL_", "GITHUB_")):
            monkeypatch.delenv(name)
    (tmp_path / "clean.yaml").write_text(CLEAN)
    (tmp_path / "bad.yaml").write_text("log: {levl: info}\n")
    (tmp_path / "warned.yaml").write_text("tokenizer: {skip_init: on}\n")
    return Runner(capsys)


def test_exit_codes(lint: Runner) -> None:
    select = ("--select", "KS0,KS101")
    assert lint("clean.yaml", *select)[0] == 0
    assert lint("bad.yaml")[0] == 1
    assert lint("bad.yaml", "--fail-on", "never")[0] == 0
    assert lint("warned.yaml", *select)[0] == 0
    assert lint("warned.yaml", *select, "--fail-on", "warning")[0] == 1
    assert lint("none.yaml")[0] == 2
    assert lint()[0] == 2
    assert lint("clean.yaml", "--nonsense")[0] == 2
    assert lint("clean.yaml", "--select", "KS999")[0] == 2
    assert lint("bad.yaml", "none.yaml")[0] == 2


def test_a_syntax_error_is_a_finding_with_a_place(lint: Runner) -> None:
    Path("broken.yaml").write_text("log: [\n")
    code, out, _ = lint("broken.yaml", "--format", "concise")
    assert code == 1
    assert re.match(r"broken\.yaml:\d+:\d+: error KS001 ", out)


def test_several_formats_in_one_run(lint: Runner) -> None:
    code, out, _ = lint(
        "bad.yaml", "--format", "sarif", "-o", "x.sarif", "--format", "concise", "-o", "-"
    )
    assert code == 1
    assert out.startswith("bad.yaml:1:7: error KS101")
    assert json.loads(Path("x.sarif").read_text())["version"] == "2.1.0"
    assert lint("bad.yaml", "--format", "json", "--format", "sarif", "-o", "x")[0] == 2


def test_the_variable_sets_the_format(lint: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KIMI_SERVE_LINT_FORMAT", "json")
    assert json.loads(lint("clean.yaml")[1])["format_version"] == "1.0"
    monkeypatch.setenv("KIMI_SERVE_LINT_FORMAT", "yaml")
    assert lint("clean.yaml")[0] == 2
    monkeypatch.delenv("KIMI_SERVE_LINT_FORMAT")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert "|" not in lint("bad.yaml")[1]


@pytest.mark.parametrize(
    "argv",
    [
        ["none.yaml"],
        ["--nonsense"],
        [],
        ["clean.yaml", "--engine", "x"],
        ["clean.yaml", "\u2013-env"],
        ["clean.yaml", "--baseline", "none.json"],
    ],
)
def test_a_failed_run_still_prints_a_document(lint: Runner, argv: list[str]) -> None:
    code, out, err = lint("--format", "json", *argv)
    assert code == 2
    assert json.loads(out)["errors"]
    assert err
    code, out, _ = lint("--format", "sarif", *argv)
    assert code == 2
    (run,) = json.loads(out)["runs"]
    assert run["invocations"][0]["executionSuccessful"] is False


def test_a_fault_of_ours_is_exit_2_without_a_traceback(
    lint: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError(SECRET)

    monkeypatch.setattr(session, "lint_one", broken)
    code, out, err = lint("clean.yaml", "--format", "json")
    assert code == 2
    assert "internal error: RuntimeError" in json.loads(out)["errors"][0]["message"]
    assert "Traceback" not in err
    assert SECRET not in out + err


def test_standard_input(lint: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"log: {levl: info}\n")))
    code, out, _ = lint("-", "--format", "concise")
    assert (code, out.partition(" ")[0]) == (1, "<stdin>:1:7:")


def test_variables_only_when_asked(lint: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KIMI_SERVE_TOKENIZER_WORKER_NUM", "4")
    assert "KS102" not in lint("clean.yaml")[1]
    code, out, _ = lint("clean.yaml", "--env", "--format", "concise")
    assert code == 1
    assert "env KIMI_SERVE_TOKENIZER_WORKER_NUM: error KS102" in out


def test_env_files_have_places(lint: Runner) -> None:
    Path("prod.env").write_text("# x\nexport KIMI_SERVE_TOKENIZER_WORKER_NUM='4'\n")
    code, out, _ = lint("clean.yaml", "--env-file", "prod.env", "--format", "json")
    assert code == 1
    (found,) = [item for item in json.loads(out)["findings"] if item["id"] == "KS102"]
    assert found["origin"]["name"] == "KIMI_SERVE_TOKENIZER_WORKER_NUM"
    assert (found["origin"]["file"], found["origin"]["line"]) == ("prod.env", 2)
    assert found["origin"]["kind"] == "env"
    Path("prod.env").write_text(f"{SECRET}\n")
    code, out, err = lint("clean.yaml", "--env-file", "prod.env")
    assert code == 2
    assert SECRET not in out + err


def test_baseline(lint: Runner) -> None:
    assert lint("bad.yaml", "--write-baseline", "base.json")[0] == 0
    assert lint("bad.yaml", "--baseline", "base.json")[0] == 0
    Path("bad.yaml").write_text("# moved\nlog: {levl: info, x: 1}\n")
    code, out, _ = lint("bad.yaml", "--baseline", "base.json", "--format", "concise")
    assert code == 1
    assert "`x`" in out
    assert "levl" not in out
    code, _, err = lint("clean.yaml", "--baseline", "base.json", "--ignore", "KS1")
    assert code == 0
    assert "--write-baseline" in err


def test_fix_and_diff(lint: Runner) -> None:
    before = Path("warned.yaml").read_bytes()
    code, out, _ = lint("warned.yaml", "--diff", "--select", "KS005")
    assert "+tokenizer: {skip_init: true}" in out
    assert Path("warned.yaml").read_bytes() == before
    Path("warned.yaml").chmod(0o640)
    code, out, _ = lint("warned.yaml", "--fix", "--select", "KS005", "--fail-on", "info")
    assert code == 0
    assert Path("warned.yaml").read_bytes() == b"tokenizer: {skip_init: true}\n"
    assert Path("warned.yaml").stat().st_mode & 0o777 == 0o640


def test_statistics(lint: Runner) -> None:
    Path("bad.yaml").write_text("log: {levl: info, x: 1}\n")
    _, out, _ = lint("bad.yaml", "--statistics", "--select", "KS101")
    assert out.split() == ["2", "KS101", "unknown-key"]


def test_a_parent_is_reported_once(lint: Runner) -> None:
    for name in ("a.yaml", "b.yaml"):
        Path(name).write_text("extends: bad.yaml\n")
    _, out, _ = lint("a.yaml", "b.yaml", "bad.yaml", "--format", "concise", "--select", "KS101")
    assert out.count("KS101") == 1


def test_a_profile_that_extends_itself_is_said_once(lint: Runner) -> None:
    Path("self.yaml").write_text("extends: self.yaml\n")
    _, out, _ = lint("self.yaml", "--format", "concise")
    assert out.count("KS004") == 1


def test_a_checkpoint_beside_the_profile_is_read(lint: Runner) -> None:
    Path("k3").mkdir()
    Path("k3/config.json").write_text('{"architectures": ["KimiK3ForConditionalGeneration"]}')
    Path("p.yaml").write_text(
        "model: {path: ./k3}\nengine: {kind: sglang, version: 0.5.23}\n"
        "image: {force_cpu_preprocessing: true}\n"
    )
    _, out, _ = lint("p.yaml", "--format", "concise")
    assert "p.yaml:3:34: warning KS201" in out


def test_rule_pages(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["rule"]) == 0
    listed = capsys.readouterr().out
    assert all(id in listed for id in RULES)
    assert cli.run(["rule", "ks201", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == "no-effect-for-model"
    assert cli.run(["rule", "--all", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == len(RULES)
    assert cli.run(["rule", "KS999"]) == 2


# What follows throws text at the command; a fuzzer that knows the words gets further.
WORDS = (
    "model server log engine env args api_key level port path extends worker_num tokenizer kind "
    "sglang vllm on off null ~ 010 1e3 0.10 - : , { } [ ] # ! & * | > ' \" ${X} ${ \\ --api-key"
)
YAML = st.one_of(
    st.binary(max_size=200),
    st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.lists(
        st.sampled_from([*WORDS.split(), " ", "\n", "\n  ", ": ", "\t", "\r", "\u00a0", "\ufeff"]),
        max_size=40,
    ).map(lambda pieces: "".join(pieces).encode()),
)
SECRET_LINES = st.sampled_from(
    [
        b"server: {api_key: %s}\n",
        b"server:\n  api_key: '%s'\n",
        b"server: {api_key: [%s]}\n",
        b"engine: {env: {HF_TOKEN: %s}}\n",
        b"engine: {env: {A_PASSWORD: [%s]}}\n",
        b"engine: {args: [--api-key, %s]}\n",
        b"engine: {args: [--api-key=%s]}\n",
        b"engine: {args: '--api-key %s'}\n",
        b"engine: {env: {URL: 'http://u:%s@h'}}\n",
        b"server: {api_key: %s, portt: 1} # x\n",
        b"log: {level: %s}\n",
    ]
).map(lambda line: line.replace(b"%s", SECRET.encode()))
NAMES = st.sampled_from(
    [
        "KIMI_SERVE_SERVER__PORT",
        "KIMI_SERVE_SERVER__API_KEY",
        "KIMI_SERVE_ENGINE__ENV",
        "KIMI_SERVE_ENGINE__ARGS",
        "KIMI_SERVE_LOG_LEVEL",
        "SGLANG_FORCE_CPU_IMAGE_PREPROCESSING",
        "SGL_X",
        "HTTP_PROXY",
    ]
)
VALUES = st.one_of(
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30),
    st.sampled_from([SECRET, f'{{"HF_TOKEN": "{SECRET}"', f'["--api-key={SECRET}"', "on", "1"]),
)
ARGUMENTS = (
    "clean.yaml bad.yaml - --env --set server.port=x --engine sglang@1 --fix --diff --select KS1 "
    "--ignore --format json full -o x.out --baseline --fail-on never --statistics --check-host "
    "--env-file nosuch/x"
)
FUZZ = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150
)


def check(code: int, out: str, err: str, format: str) -> None:
    """Whatever came in: an exit code of the contract, a whole document, no secret."""
    assert code in (0, 1, 2)
    assert "Traceback" not in out + err
    assert "internal error" not in err
    assert SECRET not in out + err
    if format in ("json", "sarif"):
        document: Any = json.loads(out)
        assert document


@FUZZ
@given(before=YAML, line=st.one_of(st.just(b""), SECRET_LINES), after=YAML, data=st.data())
def test_any_text(lint: Runner, before: bytes, line: bytes, after: bytes, data: Any) -> None:
    Path("fuzz.yaml").write_bytes(before + line + after)
    format = data.draw(st.sampled_from(FORMATS))
    code, out, err = lint("fuzz.yaml", "--format", format, "--select", "KS")
    check(code, out, err, format)
    assert code != 2
    code, out, err = lint("fuzz.yaml", "--diff", "--select", "KS")
    check(code, out, err, "full")


@FUZZ
@given(env=st.dictionaries(NAMES, VALUES, max_size=4), format=st.sampled_from(FORMATS))
def test_any_environment(lint: Runner, env: dict[str, str], format: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in env.items():
            patch.setenv(name, value)
        check(*lint("clean.yaml", "--env", "--format", format, "--select", "KS"), format)


@FUZZ
@given(
    argv=st.lists(
        st.one_of(
            st.sampled_from(ARGUMENTS.split()),
            st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/"), max_size=8),
        ),
        max_size=6,
    )
)
def test_any_command_line(lint: Runner, argv: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"log:\n")))
        code, out, err = lint(*argv)
    check(code, out, err, "")


def test_closed_standard_input_is_an_error_of_the_run() -> None:
    command = f"{sys.executable} -P -m kimi_serve.launcher lint - <&-"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert "standard input is closed" in result.stderr
    assert "internal error" not in result.stderr


def test_a_text_where_variables_belong_is_not_repeated(tmp_path: Path) -> None:
    profile = tmp_path / "a.yaml"
    profile.write_text('engine: {env: "HF_TOKEN=hunter2LEAK"}\n', encoding="utf-8")
    command = [sys.executable, "-P", "-m", "kimi_serve.launcher", "lint", str(profile)]
    for chosen in ("concise", "json", "github", "sarif", "junit"):
        result = subprocess.run(
            [*command, "--format", chosen], capture_output=True, text=True, check=False
        )
        assert result.returncode == 1
        assert "hunter2LEAK" not in result.stdout + result.stderr


def test_an_unreadable_file_is_never_deselected(lint: Runner) -> None:
    Path("broken.yaml").write_text("a: [\n")
    for choice in (["--select", "KS5"], ["--ignore", "KS0"]):
        code, out, _ = lint("broken.yaml", *choice)
        assert (code, "KS001" in out) == (1, True)


@pytest.mark.parametrize("item", ["nonsense", "foo.bar=1", "server=1", "server.port"])
def test_set_without_a_setting_is_wrong_usage(lint: Runner, item: str) -> None:
    code, out, err = lint("clean.yaml", "--set", item, "--format", "json")
    assert code == 2
    assert json.loads(out)["errors"]
    assert "--set" in err
    assert lint("clean.yaml", "--set", "server.port=x")[0] == 1


def test_no_home_directory_is_looked_at(lint: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("homes.yaml").write_text(
        "extends: ~/base.yaml\nmodel: {path: ~/k25, tokenizer_path: ~}\n"
        'media: {allowed_local_dirs: [/srv/pics, "~", "~/x", ~root]}\n'
        'engine: {kind: vllm, python: ~/bin/python, args: [--allowed-local-media-path, "~"]}\n'
    )
    Path("base.yaml").write_text("log: {levl: 1}\n")
    said: set[tuple[int, str, str]] = set()
    for home in ("/srv/pics", str(Path.cwd()), "/root", "", None):
        if home is None:
            monkeypatch.delenv("HOME", raising=False)
        else:
            monkeypatch.setenv("HOME", home)
        said.add(lint("homes.yaml", "--select", "KS"))
    assert len(said) == 1
    assert "KS004 '~/base.yaml'" in said.pop()[1]
    monkeypatch.setenv("HOME", str(Path.cwd()))
    assert "unknown key `levl`" in lint("homes.yaml", "--env")[1]


@pytest.mark.timeout(60)
def test_nothing_is_waited_for(lint: Runner) -> None:
    os.mkfifo("pipe")
    for argv in (
        ["pipe"],
        ["/dev/zero"],
        ["."],
        ["clean.yaml", "--env-file", "pipe"],
        ["clean.yaml", "--env-file", "/dev/zero"],
        ["clean.yaml", "--baseline", "pipe"],
        ["pipe", "--fix"],
    ):
        code, _, err = lint(*argv)
        assert code == 2
        assert re.search("regular file|directory", err)
    assert not Path("pipe").is_file()
    Path("long.env").write_text("# " + "x" * 300_000)
    assert lint("clean.yaml", "--env-file", "long.env")[0] == 2


def test_a_file_is_linted_once_under_its_first_name(lint: Runner) -> None:
    Path("link.yaml").symlink_to("bad.yaml")
    os.link("bad.yaml", "hard.yaml")
    Path("child.yaml").write_text("extends: bad.yaml\n")
    names = ("./bad.yaml", "bad.yaml", "link.yaml", "hard.yaml", "child.yaml")
    code, out, _ = lint(*names, "--format", "json", "--select", "KS101")
    document = json.loads(out)
    assert code == 1
    assert document["files"] == ["./bad.yaml", "child.yaml"]
    assert [each["origin"]["file"] for each in document["findings"]] == ["./bad.yaml"]
    (found,) = json.loads(lint("child.yaml", "./bad.yaml", "--format", "json")[1])["findings"]
    assert found["origin"]["file"] == "./bad.yaml"


def test_a_diff_of_nothing_says_so(lint: Runner) -> None:
    code, out, err = lint("bad.yaml", "--diff")
    assert (code, out) == (1, "")
    assert "nothing here can be mended by itself: 1 finding stays" in err
    assert "mended" not in lint("clean.yaml", "--diff", "--select", "KS1")[2]
    Path("two.yaml").write_text(f"server: {{port: 0x1F, api_key: {SECRET}}}\nlog:\n")
    _, out, err = lint("two.yaml", "--diff")
    assert "+log: {}" in out
    assert "1 change is left out of the diff" in err
    assert SECRET not in out + err


def test_fix_refuses_a_read_only_file(lint: Runner) -> None:
    Path("warned.yaml").chmod(0o444)
    code, _, err = lint("warned.yaml", "--fix")
    assert code == 2
    assert "warned.yaml cannot be written: it is read-only" in err
    assert "on" in Path("warned.yaml").read_text()


def test_one_gone_finding_is_gone(lint: Runner) -> None:
    lint("bad.yaml", "--select", "KS101", "--write-baseline", "b.json")
    Path("bad.yaml").write_text(CLEAN)
    _, _, err = lint("bad.yaml", "--select", "KS101", "--baseline", "b.json")
    assert "1 finding of the baseline is gone" in err


@pytest.mark.parametrize("first", ["json", "sarif"])
def test_two_documents_never_share_standard_output(lint: Runner, first: str) -> None:
    code, out, err = lint("clean.yaml", "--format", first, "--format", "junit")
    assert code == 2
    assert "give each --format its -o" in err
    assert json.loads(out)


def test_an_empty_name_is_said_to_be_one(lint: Runner) -> None:
    code, _, err = lint("", "clean.yaml")
    assert (code, "empty text" in err, "directory" in err) == (2, True, False)


def test_a_report_does_not_go_where_a_profile_is(lint: Runner) -> None:
    code, _, err = lint("clean.yaml", "-o", "clean.yaml")
    assert (code, "overwrite clean.yaml, which is read" in err) == (2, True)
    assert Path("clean.yaml").read_text() == CLEAN


def test_a_blank_before_the_sign_is_refused(lint: Runner) -> None:
    Path("e").write_text("A=1\nNAME =hunter2\n")
    code, _, err = lint("clean.yaml", "--env-file", "e")
    assert (code, "e:2: a blank stands before" in err, "hunter2" in err) == (2, True, False)


@pytest.mark.parametrize("word", ["server.api_key=hunter2hunter2", "api_key=hunter2hunter2"])
def test_a_forgotten_set_is_not_repeated(
    word: str, lint: Runner, capsys: pytest.CaptureFixture[str]
) -> None:
    for format in FORMATS:
        code, out, err = lint("clean.yaml", word, "--format", format)
        assert code == 2
        assert "hunter2" not in out + err
        if word.startswith("server"):
            assert "write --set server.api_key=VALUE" in err
    assert cli.run(["plan", "clean.yaml", word]) == 2
    said = capsys.readouterr()
    assert "hunter2" not in said.out + said.err


@pytest.mark.parametrize("command", [("rule", "--all"), ("rule", "KS006"), ("schema",), ("plan",)])
def test_what_an_encoding_cannot_say_is_escaped(command: tuple[str, ...], tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "PYTHONIOENCODING": "latin-1", "HOME": str(tmp_path)}
    program = [sys.executable, "-m", "kimi_serve.launcher"]
    set_name = ["--served-model-name", "a\u2014b"] if command == ("plan",) else []
    done = subprocess.run(
        [*program, *command, *set_name], env=env, capture_output=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert b"Traceback" not in done.stderr
    if command != ("schema",):
        assert b"\\u20" in done.stdout
