"""Keeps what a command writes from replacing what it reads, and one result from another.

Files are told by what they are: a link to a file is that file, also a hard one.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable

from kimi_serve.schemas.errors import ConfigError
from kimi_serve.schemas.plan import SettingValue

from .sources.characters import printable

STDIN = "/dev/stdin"
Name = str | os.PathLike[str]
_Identity = str | tuple[int, int]


def check_outputs(outputs: Iterable[tuple[str, Name | None]], read: Iterable[Name]) -> None:
    """Raise ConfigError where an output is a file of `read`, or the file of another output.

    Outputs come with what asks for them; one that is None is not asked for. Call it before any
    work: nothing is written yet.
    """
    known = {_identity(name) for name in read}
    taken: dict[_Identity, str] = {}
    for what, name in outputs:
        identity = None if name is None else _identity(name)
        if name is None or identity is None:
            continue
        shown = printable(os.fspath(name))
        if identity in known:
            raise ConfigError(
                f"{what} would overwrite {shown}, which is read", hint="name another file"
            )
        if identity in taken:
            asked = what if what == taken[identity] else f"{taken[identity]} and {what}"
            raise ConfigError(
                f"{shown} is used twice, for {asked}: one would overwrite the other",
                hint="give each a file of its own",
            )
        taken[identity] = what


def profiles_of(values: Iterable[SettingValue]) -> set[str]:
    """Name the profiles that settings were read from, parents too."""
    origins = [
        origin
        for value in values
        for origin in (value.origin, *(origin for origin, _ in value.overrode))
    ]
    return {origin.name for origin in origins if origin.kind == "profile"}


def _identity(name: Name) -> _Identity | None:
    """Tell a file by what it is, one that is not there by where it would be; None for a device.

    /dev/null takes any number of reports.
    """
    try:
        found = os.stat(name)
    except (OSError, ValueError):
        return _real(name)
    return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else None


def _real(name: Name) -> str:
    try:
        return os.path.realpath(name)
    except ValueError:
        return os.fspath(name)  # no name of a file: using it says so
