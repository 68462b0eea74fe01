"""No command writes over what it reads, nor one result over another."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kimi_serve.launcher.cli import run
from kimi_serve.launcher.outputs import check_outputs, profiles_of
from kimi_serve.launcher.sources.load import load_settings
from kimi_serve.schemas.errors import ConfigError

PROFILE = "log: {level: info}\n"
LINKS = {"the same": None, "a symlink": Path.symlink_to, "a hard link": Path.hardlink_to}


@pytest.fixture(params=LINKS)
def other_name(request: pytest.FixtureRequest) -> Callable[[Path, str], Path]:
    """Give another name of a file: its own, or that of a link beside it."""
    link = LINKS[request.param]

    def name(file: Path, wanted: str) -> Path:
        if link is None:
            return file.parent / "." / file.name
        link(file.parent / wanted, file)
        return file.parent / wanted

    return name


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_file_is_known_by_what_it_is(here: Path, other_name: Callable[[Path, str], Path]) -> None:
    file = here / "a"
    file.write_text("x", encoding="utf-8")
    again = other_name(file, "b")
    with pytest.raises(ConfigError, match=r"--out would overwrite .*, which is read"):
        check_outputs([("--out", again)], ["a"])
    with pytest.raises(ConfigError, match="used twice, for --out and --picture"):
        check_outputs([("--out", "a"), ("--picture", again)], [])


def test_what_is_not_there_yet_is_known_by_its_place(here: Path) -> None:
    (here / "d").mkdir()
    with pytest.raises(ConfigError, match="used twice, for a report"):
        check_outputs([("a report", "x"), ("a report", here / "d" / ".." / "x")], [])
    check_outputs([("--out", "x"), ("--picture", "y"), ("--more", None)], ["z"])


def test_a_device_takes_anything(here: Path) -> None:
    check_outputs([("--out", os.devnull), ("--picture", os.devnull)], [os.devnull, str(here)])


def test_a_parent_of_a_profile_is_read_too(here: Path) -> None:
    (here / "base.yaml").write_text("log: {level: debug}\n", encoding="utf-8")
    (here / "p.yaml").write_text("extends: base.yaml\nlog: {level: info}\n", encoding="utf-8")
    names = profiles_of(load_settings(["p.yaml"]).values)
    with pytest.raises(ConfigError, match=r"overwrite base\.yaml"):
        check_outputs([("--picture", "base.yaml")], names)


@pytest.mark.parametrize(
    ("name", "argv"),
    [
        ("p.png", ["plan", "{file}", "--engine", "sglang", "--picture", "{other}"]),
        ("p.yaml", ["lint", "{file}", "-o", "{other}"]),
        ("p.yaml", ["lint", "{file}", "--write-baseline", "{other}"]),
        ("p.env", ["lint", "p.yaml", "--env-file", "{file}", "-o", "{other}"]),
        ("p.json", ["lint", "p.yaml", "--baseline", "{file}", "-o", "{other}"]),
        ("p.yaml", ["preprocess", "x.png", "--profile", "{file}", "--out", "{other}"]),
        ("p.png", ["preprocess", "{file}", "--out", "{other}"]),
        ("p.png", ["preprocess", "{file}", "--picture", "{other}"]),
        ("p.env", ["adopt", "--env-file", "{file}", "-o", "{other}", "--", "vllm", "serve", "m"]),
        ("p.yaml", ["adopt", "-o", "{other}", "--", "vllm", "serve", "m", "--config", "{file}"]),
        (
            "p.env",
            [
                *("adopt", "-o", "{other}", "--", "docker", "run", "--env-file", "{file}", "img"),
                *("vllm", "serve", "m"),
            ],
        ),
        ("report.json", ["verify", "--profile", "{file}", "--out", "{folder}"]),
    ],
)
def test_no_command_overwrites_what_it_reads(
    name: str,
    argv: list[str],
    here: Path,
    other_name: Callable[[Path, str], Path],
    capsys: pytest.CaptureFixture[str],
) -> None:
    (here / "p.yaml").write_text(PROFILE, encoding="utf-8")
    file = here / name
    file.write_text(PROFILE if name != "p.env" else "A=1\n", encoding="utf-8")
    before = file.read_bytes()
    (here / "out").mkdir()
    other = other_name(file, f"out/{name}")
    words = {"file": str(file), "other": str(other), "folder": str(other.parent)}
    code = run([word.format(**words) for word in argv])
    said = capsys.readouterr().err
    assert (code, "would overwrite" in said, "which is read" in said) == (2, True, True), said
    assert file.read_bytes() == before


def test_two_results_of_preprocess_need_two_files(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["preprocess", "x.png", "--out", "y.png", "--picture", "./y.png"]) == 2
    assert "used twice, for --out and --picture" in capsys.readouterr().err
    assert not list(here.iterdir())
