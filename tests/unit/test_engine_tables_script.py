"""The maintainers' script on a small made-up package: what it reads, what it says if it cannot."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import engine_tables
import pytest
from engine_reading import curated

FIELDS = """
import argparse
from typing import List, Literal, Optional
CHOICES = ["a", "b"] + ["c"]
class Part:
    plain: A[int, "How many."] = 2 * 1024
    path: A[str, Arg(help="Where.", aliases=["--where"])]
    named: A[Optional[str], Arg(help="x", cli_name="--other-name", choices=CHOICES)] = None
    word: A[Literal["x", "y"], "One of two."] = "x"
    many: A[List[float], "Several."] = field(default_factory=list)
    either: A[Optional[bool], Arg(help="x", action=argparse.BooleanOptionalAction)] = None
    on: A[bool, "A switch."] = False
    old: A[bool, "Deprecated. Use --word=y instead."] = False
    hidden: A[bool, Arg(help="x", no_cli=True)] = False
    late: Optional[str] = "auto"
"""
SERVER_ARGS = """
class ServerArgs:
    @staticmethod
    def add_cli_args(parser):
        parser.add_argument("--late", type=str, default=_declared_default("late"))
        parser.add_argument("--gone", action=DeprecatedStoreTrueAction, new_flag="--on", help="x")
"""
ENVIRON = """
class Envs:
    SGLANG_SWITCH = EnvBool(True)
    SGLANG_SIZE = EnvInt(16 * 1024)
    SGLANG_NEW = EnvBoolWithAlias(False, deprecated_name="SGLANG_OLD")
    SGLANG_SECRET = EnvStr(None, secret=True)
    SGLANG_LAZY = EnvStr(lambda: here())
_DEPRECATED_ENVS = {"SGLANG_DEAD": _DeprecatedEnv(note="Please use '--plain' instead.")}
"""
READER = """
import os
COUNT = int(os.environ.get("SGLANG_COUNT", "3"))
if os.getenv("SGLANG_LOUD", "0").strip().lower() in ("1", "true"): pass
ALSO = get_bool_env_var("SGLANG_SWITCH", "false")
TABLE = ("SGLANG_NAMED",)
PLAIN = get_bool_env_var("OTHER")
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A site-packages folder with an engine of four small files."""
    root = tmp_path / "site-packages"
    files = {
        "sglang/__init__.py": "",
        "sglang/srt/arg_groups/fields/part.py": FIELDS,
        "sglang/srt/server_args.py": SERVER_ARGS,
        "sglang/srt/environ.py": ENVIRON,
        "sglang/srt/reader.py": READER,
        "sglang-9.9.dist-info/METADATA": "Name: sglang\n",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    kept = tmp_path / "curated.toml"
    kept.write_text(
        'deprecated = []\n[removed.sglang]\n"--ancient" = "--plain"\n[since.sglang]\n'
        '"--ancient" = "9.0"\n[compiled]\nsglang = ["SGLANG_COMPILED"]\n',
        encoding="utf-8",
    )
    monkeypatch.setattr(curated, "FILE", kept)
    return root


def read(package: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert engine_tables.main([str(package)]) == 0
    table: dict[str, Any] = json.loads(capsys.readouterr().out)
    return table


def test_flags_are_read_as_the_engine_declares_them(
    package: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = {row["flag"]: row for row in read(package, capsys)["flags"]}
    plain = {"flag": "--plain", "field": "plain", "type": "int", "action": "store", "default": 2048}
    assert flags["--plain"] == plain
    assert flags["--path"]["aliases"] == ["--where"]
    assert flags["--path"]["required"]
    assert flags["--other-name"]["choices"] == ["a", "b", "c"]
    assert flags["--word"]["choices"] == ["x", "y"]
    assert (flags["--many"]["type"], flags["--many"]["nargs"]) == ("float", "+")
    assert flags["--either"]["negatives"] == ["--no-either"]
    assert flags["--on"]["action"] == "store_true"
    assert flags["--old"]["deprecated"] == "--word=y"
    assert flags["--gone"]["deprecated"] == "--on"
    assert flags["--late"]["default"] == "auto"
    assert "--hidden" not in flags


def test_variables_are_read_with_what_is_made_of_them(
    package: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = read(package, capsys)
    declared = {row["name"]: row for row in table["environment"]}
    beside = {row["name"]: row["kind"] for row in table["undeclared_environment"]}
    assert declared["SGLANG_SIZE"]["default"] == 16384
    assert declared["SGLANG_SWITCH"]["also"] == ["get-bool"]
    assert declared["SGLANG_OLD"]["deprecated_by"] == "SGLANG_NEW"
    assert declared["SGLANG_DEAD"]["deprecated_by"] == "--plain"
    assert declared["SGLANG_SECRET"]["secret"]
    assert declared["SGLANG_LAZY"]["computed"]
    assert beside == {
        "OTHER": "get-bool",
        "SGLANG_COMPILED": "str",
        "SGLANG_COUNT": "int",
        "SGLANG_LOUD": "strip lower in (1, true)",
        "SGLANG_NAMED": "str",
    }
    assert table["removed"] == [{"name": "--ancient", "since": "9.0", "instead": "--plain"}]


def test_a_wheel_and_its_installed_directory_give_the_same_table(
    package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wheel = tmp_path / "sglang-9.9-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for file in package.rglob("*"):
            archive.write(file, file.relative_to(package))
    assert read(wheel, capsys) == read(package, capsys) == read(package / "sglang", capsys)


def test_check_shows_the_row_that_differs(
    package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [str(package), "--tables", str(tmp_path)]
    assert engine_tables.main([*arguments, "--check"]) == 1
    assert engine_tables.main([*arguments, "--write"]) == 0
    assert engine_tables.main([*arguments, "--check"]) == 0
    capsys.readouterr()
    reader = package / "sglang" / "srt" / "reader.py"
    reader.write_text(READER.replace("SGLANG_NAMED", "SGLANG_RENAMED"), encoding="utf-8")
    assert engine_tables.main([*arguments, "--check"]) == 1
    changed = [line for line in capsys.readouterr().out.splitlines() if line[:2] in ("- ", "+ ")]
    assert ["SGLANG_NAMED" in changed[0], "SGLANG_RENAMED" in changed[1]] == [True, True]
    assert len(changed) == 2


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("sglang/srt/environ.py", None, "has no sglang/srt/environ.py"),
        ("sglang/srt/environ.py", "class Envs:\n A = EnvX(1)\n", ":2: A is of an unknown kind 'X'"),
        ("sglang/srt/environ.py", "class Envs: pass\n", "class Envs declares nothing"),
        ("sglang/srt/server_args.py", "x = 1\n", "server_args.py has no ServerArgs.add_cli_args"),
        ("sglang/srt/reader.py", "os.environ[\n", "sglang/srt/reader.py:1: not Python"),
        ("sglang/srt/arg_groups/fields/part.py", "", "no annotated fields found under"),
    ],
)
def test_what_cannot_be_read_is_said_in_one_line(
    package: Path, capsys: pytest.CaptureFixture[str], file: str, text: str | None, said: str
) -> None:
    (package / file).unlink()
    if text is not None:
        (package / file).write_text(text, encoding="utf-8")
    assert engine_tables.main([str(package)]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_a_package_without_a_version_is_said(
    package: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (package / "sglang-9.9.dist-info").rename(package / "elsewhere")
    assert engine_tables.main([str(package)]) == 2
    assert "has 0 sglang-*.dist-info directories" in capsys.readouterr().err


def test_a_hand_kept_name_that_is_wrong_is_said(
    package: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = curated.FILE.read_text(encoding="utf-8")
    curated.FILE.write_text(text.replace('"--plain"', '"--no-such-flag"'), encoding="utf-8")
    assert engine_tables.main([str(package)]) == 2
    assert "--no-such-flag, to be written for --ancient" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["missing.whl", "text.whl", "empty"])
def test_what_is_no_package_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (tmp_path / "text.whl").write_text("no zip", encoding="utf-8")
    (tmp_path / "empty").mkdir()
    assert engine_tables.main([str(tmp_path / name)]) == 2
    assert capsys.readouterr().err.startswith(f"error: {tmp_path / name}")
