"""`--diff` is what patch takes, byte for byte, and shows no secret."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from kimi_serve.launcher.lint.patch import Patch, make_patch
from kimi_serve.launcher.secrets.known import Known

PATCH = shutil.which("patch")
needs_patch = pytest.mark.skipif(PATCH is None, reason="patch is not installed")
SECRET = b"sk-EXAMPLEEXAMPLE"


def applied(patch: Patch, before: bytes, name: str, folder: Path) -> bytes:
    """Let the real patch change a file."""
    assert PATCH
    file = folder / name
    file.write_bytes(before)
    subprocess.run([PATCH, "-p0", "-s"], input=patch.data, cwd=folder, check=True)
    assert [each.name for each in folder.iterdir()] == [name]  # no .orig: nothing was guessed
    return file.read_bytes()


@needs_patch
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"log:\r\na: 1\r\n", b"log: {}\r\na: 1\r\n"),
        (b"log:\ra: on\r", b"log: {}\ra: true\r"),
        (b"\xef\xbb\xbflog:\na: 1", b"\xef\xbb\xbflog: {}\na: 1"),
        (b"log:", b"log: {}"),
        (b"a: 1\nlog:\n\x0c\n\xc2\x85", b"a: 1\nlog: {}\n\x0c\n\xc2\x85"),
        (b"# x\n# y\nlog: 1\n", b"log: 1\n"),
        (b"a\n" * 30 + b"log:\n" + b"b\n" * 30 + b"c: on", b"a\n" * 31 + b"b\n" * 30 + b"c: true"),
    ],
)
def test_patch_makes_the_same_bytes(before: bytes, after: bytes, tmp_path: Path) -> None:
    patch = make_patch(before, after, "p.yaml", Known())
    assert applied(patch, before, "p.yaml", tmp_path) == after


@needs_patch
@pytest.mark.parametrize(
    "name", ["a b.yaml", "new\nline.yaml", 'q"x.yaml', "back\\slash.yaml", "\u00fc.yaml", "\udcff"]
)
def test_patch_finds_files_of_any_name(name: str, tmp_path: Path) -> None:
    patch = make_patch(b"log:\n", b"log: {}\n", name, Known())
    assert applied(patch, b"log:\n", name, tmp_path) == b"log: {}\n"


def test_an_absolute_name_is_seen_from_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    patch = make_patch(b"log:\n", b"log: {}\n", str(tmp_path / "p.yaml"), Known())
    assert patch.data.startswith(b"--- p.yaml\n+++ p.yaml\n")


@needs_patch
def test_secrets_around_a_change_are_no_context(tmp_path: Path) -> None:
    before = b"server: {api_key: %s}\nlog:\ngpu: {ids: []}\n" % SECRET
    after = before.replace(b"log:", b"log: {}")
    patch = make_patch(before, after, "p.yaml", Known())
    assert SECRET not in patch.data
    assert patch.num_left_out == 0
    assert applied(patch, before, "p.yaml", tmp_path) == after


@needs_patch
def test_a_change_on_a_line_with_a_secret_is_left_out(tmp_path: Path) -> None:
    before = b"# x\nserver: {port: 0x1F, api_key: %s}\na: 1\nlog:\n" % SECRET
    patch = make_patch(
        before,
        before.replace(b"# x\n", b"").replace(b"0x1F", b"31").replace(b"log:", b"log: {}"),
        "p.yaml",
        Known(),
    )
    assert SECRET not in patch.data
    assert patch.num_left_out == 1
    assert b"@@ -4 +4 @@" in patch.data
    assert applied(patch, before, "p.yaml", tmp_path) == before.replace(b"log:", b"log: {}")


def test_a_text_that_may_not_be_shown_is_left_out() -> None:
    before = b"api_key: sk-EXAMPLE\n\tx: [\n# y\n"
    patch = make_patch(before, before.replace(b"# y\n", b""), "p.yaml", Known())
    assert patch == Patch(b"", 1)
