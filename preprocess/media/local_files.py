"""Images by path: only below listed folders, and one refusal for whatever is not read."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from io import FileIO
from urllib.parse import unquote_to_bytes

from kimi_serve.schemas.errors import MediaError

from ..daemon_threads import DaemonThreads
from ..images.limits import require_bytes
from ..images.reference import BAD_ESCAPE
from ..images.sniff import sniff
from .limits import READS_AT_ONCE, Take

_FILE_URL = re.compile(r"file:(?://(?:localhost)?(?=/))?(/[^?#]*)", re.IGNORECASE | re.DOTALL)


class LocalFiles:
    """Reads images below `folders`, which may be links and may change while the server runs."""

    def __init__(self, folders: Iterable[str], max_bytes: int) -> None:
        self._folders = tuple(os.fsencode(os.path.normpath(folder)) for folder in folders)
        self._max_bytes = max_bytes
        self._threads = DaemonThreads(READS_AT_ONCE)

    async def read(self, reference: str, take: Take) -> bytes:
        """Give the file that a path or file URL names, counted by `take`; raises RequestError."""
        path = path_of(reference)
        file = await self._threads.run(lambda: self._open(path), discard=FileIO.close)
        try:
            size = os.fstat(file.fileno()).st_size
            require_bytes(size, self._max_bytes)
            take(size)
        except BaseException:
            file.close()
            raise
        data = await self._threads.run(lambda: _read(file, size), unstarted=file.close)
        found = sniff(data)
        if found.format is None and not found.is_raster:
            raise _refusal()
        return data

    def _open(self, path: bytes | None) -> FileIO:
        """Open a regular file that really lies below a folder.

        What is checked is the file that was found, not its name: O_PATH opens nothing yet, so that
        a device or a pipe is left alone, and /proc tells where links have led.
        """
        if path is None:
            raise _refusal()
        folders = [(folder, os.path.realpath(folder)) for folder in self._folders]
        if not any(_is_below(path, place) for names in folders for place in names):
            raise _refusal()
        try:
            found = os.open(path, os.O_PATH | os.O_CLOEXEC)
            try:
                link = b"/proc/self/fd/%d" % found
                is_inside = any(_is_below(os.readlink(link), real) for _, real in folders)
                if not is_inside or not stat.S_ISREG(os.fstat(found).st_mode):
                    raise _refusal()
                return FileIO(os.open(link, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
            finally:
                os.close(found)
        except (OSError, ValueError):
            raise _refusal() from None


def path_of(reference: str) -> bytes | None:
    """Give the absolute path that a reference spells, None when it spells none."""
    text = reference.strip()
    url = _FILE_URL.fullmatch(text)
    try:
        if url is not None:
            path = None if BAD_ESCAPE.search(url[1]) else unquote_to_bytes(url[1])
        else:
            path = os.fsencode(text) if text.startswith("/") else None
    except UnicodeEncodeError:
        return None
    return None if path is None or b"\0" in path else os.path.normpath(path)


def _is_below(path: bytes, folder: bytes) -> bool:
    return path.startswith(folder.rstrip(b"/") + b"/")


def _read(file: FileIO, size: int) -> bytes:
    """Read what was announced and counted, no more; a file that changes is not read."""
    pieces: list[bytes] = []
    left = size + 1
    try:
        with file:
            while left and (piece := file.read(left)):
                pieces.append(piece)
                left -= len(piece)
    except OSError:
        raise _refusal() from None
    if left != 1:
        raise _refusal()
    return b"".join(pieces)


def _refusal() -> MediaError:
    return MediaError(
        "the local image cannot be read: it must be an image file below media.allowed_local_dirs"
    )
