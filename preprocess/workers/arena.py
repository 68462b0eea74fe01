"""The memory that one worker writes pixels into and its parent reads: a sealed memfd of slots.

A memfd and not /dev/shm: containers give /dev/shm 64 MB, and nothing is left behind after
kill -9. The size is sealed, so that a worker cannot shrink the file under its parent (SIGBUS).
"""

from __future__ import annotations

import fcntl
import mmap
import os


class Arena:
    """`slots` areas of `slot_bytes` each; pages are used only once they are written."""

    def __init__(self, fd: int, slots: int, slot_bytes: int, *, is_writable: bool) -> None:
        self.slots = slots
        self.slot_bytes = slot_bytes
        self._fd = fd
        protection = mmap.PROT_READ | (mmap.PROT_WRITE if is_writable else 0)
        self._map: mmap.mmap | None = mmap.mmap(fd, slots * slot_bytes, mmap.MAP_SHARED, protection)

    @classmethod
    def create(cls, slots: int, slot_bytes: int) -> Arena:
        """Make a new arena that this process only reads."""
        fd = os.memfd_create("kimi-serve", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(fd, slots * slot_bytes)
            fcntl.fcntl(
                fd,
                fcntl.F_ADD_SEALS,
                fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL,
            )
            return cls(fd, slots, slot_bytes, is_writable=False)
        except BaseException:
            os.close(fd)
            raise

    def fileno(self) -> int:
        """Give the descriptor that is handed to the worker."""
        return self._fd

    def slot(self, index: int) -> memoryview:
        """Give the bytes of slot `index`, without a copy."""
        if self._map is None:
            raise ValueError("the arena is closed")
        start = index * self.slot_bytes
        return memoryview(self._map)[start : start + self.slot_bytes]

    def release_pages(self) -> None:
        """Give all pages back; what was written is gone, for every process that maps it."""
        if self._map is not None:
            self._map.madvise(mmap.MADV_REMOVE)

    def close_descriptor(self) -> None:
        """Give up the descriptor, once; the mapping stays and goes with its last view."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def close(self) -> None:
        """Give up descriptor and mapping; whoever still has a view keeps what it sees."""
        self.close_descriptor()
        # Not `close()` of the mapping, which fails while there are views: the last one ends it.
        self._map = None
