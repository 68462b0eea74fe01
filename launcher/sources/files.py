"""Reads the files that a user names: regular ones, and what a shell hands over by a descriptor.

A named pipe would be waited for without end, a device never ends.
"""

from __future__ import annotations

import errno
import os
import re
import stat

# Standard input by its name, and what bash makes of `<(command)`.
_HANDED_OVER = re.compile(r"/dev/stdin|/dev/fd/\d+|/proc/(self|\d+)/fd/\d+")


def read_file(name: str | os.PathLike[str], limit: int, *, is_named: bool = False) -> bytes:
    """Read at most `limit` bytes; OSError for what is no regular file, ValueError for no name.

    `is_named` is for names on a command line: a stream that the shell opened is read too.
    """
    if is_named and _HANDED_OVER.fullmatch(os.fspath(name)):
        with open(name, "rb") as stream:
            return stream.read(limit)
    # A pipe that takes the place of the file meanwhile must not be waited for either.
    descriptor = os.open(_regular(name), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        refuse_odd_file(os.fstat(descriptor))
        return file.read(limit)


def _regular(name: str | os.PathLike[str]) -> str | os.PathLike[str]:
    refuse_odd_file(os.stat(name))
    return name


def refuse_odd_file(found: os.stat_result) -> None:
    """Raise OSError unless a file is a regular one."""
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file")


def reason_of(error: OSError | ValueError) -> str:
    """Say why a file could not be used, without the name that an error repeats."""
    strerror = error.strerror if isinstance(error, OSError) else None
    return strerror or "that is no file name"
