"""Only regular files are read, and what a shell hands over by a descriptor."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from kimi_serve.launcher.lint.run import lint_profile
from kimi_serve.launcher.sources.files import read_file

pytestmark = pytest.mark.timeout(20)


def odd_files(folder: Path) -> list[Path]:
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "socket"))
    return [folder / "pipe", folder / "socket", folder, Path("/dev/zero")]


def test_odd_files_are_refused_at_once(tmp_path: Path) -> None:
    for path in odd_files(tmp_path):
        for is_named in (False, True):
            with pytest.raises(OSError, match=r"regular file|directory"):
                read_file(path, 10, is_named=is_named)


def test_a_regular_file_is_read_up_to_a_limit(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abcdef")
    (tmp_path / "link").symlink_to("file")
    assert read_file(tmp_path / "link", 4) == b"abcd"


def test_a_stream_of_the_shell_is_read_when_it_was_named() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"log: {}\n")
    os.close(writing)
    with pytest.raises(OSError, match="regular file"):
        read_file(f"/dev/fd/{reading}", 99)
    assert read_file(f"/dev/fd/{reading}", 99, is_named=True) == b"log: {}\n"
    os.close(reading)


def test_no_parent_of_a_profile_is_waited_for(tmp_path: Path) -> None:
    for path in odd_files(tmp_path):
        text = f"extends: {path}\n".encode()
        (found,) = [
            each
            for each in lint_profile(text, name="p.yaml", folder=tmp_path).findings
            if each.origin.line is not None
        ]
        assert found.rule == "KS004"
