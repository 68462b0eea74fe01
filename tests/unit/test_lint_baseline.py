"""Baselines hold no values, survive moved lines, and let new findings through."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from kimi_serve.launcher.lint.baseline import (
    apply_baseline,
    baseline_text,
    fingerprint,
    read_baseline,
    stable_name,
)
from kimi_serve.launcher.lint.run import lint_profile
from kimi_serve.launcher.lint.selection import fails, parse_codes, select
from kimi_serve.schemas.findings import Finding


def marks(text: str) -> dict[Finding, str]:
    linted = lint_profile(text.encode(), name="p.yaml", folder=Path("/deploy"))
    return {
        found: fingerprint(found, "p.yaml", linted.sources.get(found.origin.name))
        for found in select(linted.findings)
        if found.origin.line
    }


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("server: {port: 99999}\n", "server: {port: 88888}\n"),
        ("server: {port: abc}\n", "server: {port: xyz}\n"),
        ("model: {trust_remote_code: on}\n", "# moved\n\nmodel: {trust_remote_code: on}\n"),
        ("log: {level: loud}\n", "log: {level: quite_loud}\n"),
        ("server: {port: 010}\n", "server: {port: 020}\n"),
    ],
)
def test_values_and_lines_do_not_count(text: str, other: str) -> None:
    assert list(marks(text).values())
    assert sorted(marks(text).values()) == sorted(marks(other).values())


def test_another_setting_is_another_finding() -> None:
    assert set(marks("server: {port: 0x}\n").values()).isdisjoint(
        marks("tokenizer: {worker_num: 0x}\n").values()
    )


def test_new_ones_fail_and_gone_ones_are_counted() -> None:
    old = marks("server: {port: abc}\nlog: {levl: 1}\n")
    known = read_baseline(baseline_text(old.items()).encode())
    assert apply_baseline(old, known).new == ()
    now = marks("server: {port: abc}\ngpu: {total_mib: x}\n")
    judged = apply_baseline(now, known)
    assert [found.path for found in judged.new] == ["gpu.total_mib"]
    assert judged.num_vanished == 1


def test_the_file_has_no_values_and_no_lines() -> None:
    text = baseline_text(marks("server: {port: 98765}\n").items())
    assert "98765" not in text
    (entry,) = json.loads(text)["entries"]
    assert set(entry) == {"rule", "fingerprint", "count"}


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"entries": [1]}', b"\xff", b"[" * 99999])
def test_other_files_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="baseline"):
        read_baseline(data)


MARK = "0" * 64


@pytest.mark.parametrize(
    "entries",
    [
        "{}",
        "[1]",
        "[{}]",
        f'[{{"fingerprint": "{MARK}"}}]',
        '[{"fingerprint": "abc", "count": 1}]',
        *(
            f'[{{"fingerprint": "{MARK}", "count": {count}}}]'
            for count in ("1e999", "-5", "0", "1.5", "true", '"1"', "null", "NaN")
        ),
        f'[{{"fingerprint": "{MARK}", "count": 1}}, {{"fingerprint": "{MARK}", "count": 1}}]',
    ],
)
def test_entries_are_read_strictly(entries: str) -> None:
    with pytest.raises(ValueError, match="no baseline of kimi-serve lint: "):
        read_baseline(f'{{"format_version": "1.0", "entries": {entries}}}'.encode())


@pytest.mark.parametrize("version", ["2.0", 1.0, None, "1.", "1.x"])
def test_another_format_is_refused(version: object) -> None:
    with pytest.raises(ValueError, match="another format_version"):
        read_baseline(json.dumps({"format_version": version, "entries": []}).encode())


@pytest.mark.parametrize("has_repository", [True, False])
def test_the_working_directory_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_repository: bool
) -> None:
    folder = tmp_path / "repository" / "deploy"
    folder.mkdir(parents=True)
    if has_repository:
        (tmp_path / "repository" / ".git").mkdir()
    (found, *_) = marks("server: {port: abc}\n")
    taken: set[str] = set()
    for where in (tmp_path, folder.parent, folder):
        monkeypatch.chdir(where)
        for name in (str(folder / "p.yaml"), os.path.relpath(folder / "p.yaml")):
            here = replace(found, origin=replace(found.origin, name=name))
            taken.add(fingerprint(here, name, None))
            assert stable_name("<stdin>") == "<stdin>"
    assert len(taken) == 1
    assert stable_name("p.yaml") == ("deploy/p.yaml" if has_repository else "p.yaml")


def test_that_a_file_is_no_profile_is_always_said() -> None:
    for text in (b"a: [\n", b"- 1\n", b"extends: none.yaml\n", b"log:\nlog:\n", b"log: 1 # \x00\n"):
        found = lint_profile(text, name="p", folder=Path("/deploy")).findings
        assert select(found, ("KS5",), ("KS0",))


def test_selection() -> None:
    found = lint_profile(b"log:\n", name="p", folder=Path()).findings
    assert all(item.severity != "info" for item in select(found))
    assert {item.rule for item in select(found, ("KS1",))} >= {"KS106"}
    assert not select(found, ("KS106",), ("KS1",))
    assert parse_codes(["ks1,KS201"]) == ("KS1", "KS201")
    with pytest.raises(ValueError, match="no rule"):
        parse_codes(["KS999"])
    assert not fails(found, "never")
