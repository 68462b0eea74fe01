"""Puts a mended text into its file: in place, so that owner, mode and links stay as they are."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

from ..sources.characters import printable
from ..sources.files import refuse_odd_file

_WRITABLE = 0o222


def write_file(path: Path, before: bytes, after: bytes) -> None:
    """Replace `before` by `after` in a file; OSError where that cannot be done.

    A copy lies beside it until the new text is on the disk. It is put back when the writing fails,
    and stays, named in the error, when that fails too.
    """
    found = os.stat(path)
    refuse_odd_file(found)
    real = Path(os.path.realpath(path))
    if not found.st_mode & _WRITABLE:  # root could write it, and was told not to
        raise PermissionError(errno.EACCES, "it is read-only")
    descriptor = os.open(real, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        refuse_odd_file(os.fstat(descriptor))
        if os.pread(descriptor, len(before) + 1, 0) != before:
            raise OSError(errno.EAGAIN, "it changed meanwhile: run again")
        copy = _copy_beside(real, before)
        try:
            _overwrite(descriptor, after)
        except BaseException as error:
            _put_back(descriptor, before, copy, error)
            raise
        os.unlink(copy)
    finally:
        os.close(descriptor)


def _copy_beside(real: Path, data: bytes) -> str:
    handle, copy = tempfile.mkstemp(dir=real.parent, prefix=f".{real.name}.", suffix=".before")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        _sync_folder(real.parent)
    except BaseException:
        os.unlink(copy)
        raise
    return copy


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _overwrite(descriptor: int, data: bytes) -> None:
    written = 0
    while written < len(data):
        written += os.pwrite(descriptor, data[written:], written)
    os.ftruncate(descriptor, len(data))
    os.fsync(descriptor)


def _put_back(descriptor: int, before: bytes, copy: str, error: BaseException) -> None:
    """Restore the old text; OSError that names its copy where that fails."""
    try:
        _overwrite(descriptor, before)
    except OSError:
        reason = f"{getattr(error, 'strerror', None) or 'stopped'}; the old text is in"
        raise OSError(errno.EIO, f"{reason} {printable(copy)}") from error
    os.unlink(copy)
