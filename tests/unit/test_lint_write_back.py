"""`--fix` writes in place, loses nothing, and leaves alone what it must not write."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from kimi_serve.launcher.lint import write_back
from kimi_serve.launcher.lint.write_back import write_file

OLD, NEW = b"log:\nserver: {port: 1}\n", b"log: {}\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "p.yaml"
    path.write_bytes(OLD)
    return path


def test_links_mode_and_node_stay(file: Path) -> None:
    hard, soft = file.with_name("hard"), file.with_name("soft")
    os.link(file, hard)
    soft.symlink_to(file.name)
    file.chmod(0o640)
    before = file.stat()
    write_file(soft, OLD, NEW)
    assert hard.read_bytes() == file.read_bytes() == NEW
    assert soft.is_symlink()
    assert file.stat().st_ino == before.st_ino
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert sorted(path.name for path in file.parent.iterdir()) == ["hard", "p.yaml", "soft"]


def test_a_read_only_file_is_refused_to_root_too(file: Path) -> None:
    file.chmod(0o444)
    with pytest.raises(OSError, match="read-only"):
        write_file(file, OLD, NEW)
    assert file.read_bytes() == OLD


def test_what_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        write_file(tmp_path / "pipe", OLD, NEW)
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_a_file_that_changed_is_not_overwritten(file: Path) -> None:
    file.write_bytes(OLD + b"# more\n")
    with pytest.raises(OSError, match="changed"):
        write_file(file, OLD, NEW)
    assert file.read_bytes() == OLD + b"# more\n"


def broken_after(calls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every write to a descriptor write one byte, and fail from a call on."""
    left = iter(range(calls))
    real = os.pwrite

    def pwrite(descriptor: int, data: bytes, offset: int) -> int:
        if next(left, None) is None:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, data[:1], offset)

    monkeypatch.setattr(write_back.os, "pwrite", pwrite)


def test_a_failed_write_is_undone(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = os.pwrite, iter([True])

    def pwrite(descriptor: int, data: bytes, offset: int) -> int:
        if next(calls, None):
            real(descriptor, data[:3], offset)
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, data, offset)

    monkeypatch.setattr(write_back.os, "pwrite", pwrite)
    with pytest.raises(OSError, match="No space"):
        write_file(file, OLD, NEW)
    assert file.read_bytes() == OLD
    assert [path.name for path in file.parent.iterdir()] == ["p.yaml"]


def test_what_cannot_be_undone_is_named(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken_after(3, monkeypatch)
    with pytest.raises(OSError, match=r"the old text is in .*\.before"):
        write_file(file, OLD, NEW)
    (copy,) = file.parent.glob(".p.yaml.*.before")
    assert copy.read_bytes() == OLD
