"""Answers that are read where their worker wrote them, for as long as nobody needs the slot."""

from __future__ import annotations

import asyncio
import logging
import mmap
import os
from collections.abc import Callable, Iterable

from kimi_serve.schemas import messages
from kimi_serve.schemas.errors import OverloadedError

from ..daemon_threads import DaemonThreads
from .worker_link import WorkerLink

logger = logging.getLogger(__name__)

# Up to here a copy costs less than a slot that waits for its reader.
SMALL_BYTES = 1 << 18
# So many buffers are kept for the next copies: fresh pages cost more than the copy.
_BUFFERS_KEPT = 8
_UNMAPPED_BYTES = 1 << 22
# More at a time would only wait for the memory.
_COPIES_AT_ONCE = 8
# What hinders a copy, no descriptor or no thread, may pass.
_AGAIN_S = 0.1


def _nothing() -> None:
    """End a lease of memory that is nobody else's."""


class ImageLease:
    """An answer and its pixels, which are there until it is released.

    They may move, never change: take `pixels` anew after everything that was waited for.
    """

    def __init__(
        self,
        result: messages.ImageResult,
        pixels: memoryview,
        on_end: Callable[[], None] = _nothing,
    ) -> None:
        self.result = result
        self.pixels = pixels
        self.is_over = False
        self._on_end = on_end

    def __len__(self) -> int:
        return self.result.nbytes

    def move(self, pixels: memoryview, on_end: Callable[[], None]) -> None:
        """Go on with the same bytes in another place, and let go of the first."""
        left, self._on_end = self._on_end, on_end
        self.pixels = pixels
        left()

    def release(self) -> None:
        """Let go of the pixels; twice is once."""
        if not self.is_over:
            self.is_over = True
            self.pixels = memoryview(b"")
            # Nothing of the worker stays with whoever keeps the lease.
            on_end, self._on_end = self._on_end, _nothing
            on_end()


class Leases:
    """All that is leased. `on_free` is told of every worker that got a slot back, and of one whose
    slots may be asked for again after a copy that freed none.

    When a worker has no slot left while images wait, its oldest answer is copied out, in a thread
    and without the interpreter lock: a client that reads slowly keeps no worker.
    """

    def __init__(self, on_free: Callable[[WorkerLink], None]) -> None:
        self._on_free = on_free
        self._in_slots: dict[WorkerLink, dict[int, ImageLease]] = {}
        self._moving: dict[WorkerLink, asyncio.Task[None]] = {}
        self._unmapping: set[asyncio.Task[None]] = set()
        self._spare: list[mmap.mmap] = []
        self._threads = DaemonThreads(_COPIES_AT_ONCE)
        self._is_hindered = False
        self.num_moved = 0

    def add(self, link: WorkerLink, slot: int, result: messages.ImageResult) -> ImageLease:
        """Lease what `link` has put into `slot`."""
        pixels = link.arena.slot(slot)[: result.nbytes]
        if result.nbytes <= SMALL_BYTES:
            lease = ImageLease(result, memoryview(bytes(pixels)))
            self._free(link, slot)
            return lease
        lease = ImageLease(result, pixels, lambda: self._free(link, slot))
        self._in_slots.setdefault(link, {})[slot] = lease
        return lease

    def make_room(self, links: Iterable[WorkerLink]) -> None:
        """Have a slot of every full worker free soon."""
        for link in links:
            leases = self._in_slots.get(link)
            if leases and link.is_usable and link.is_full and link not in self._moving:
                slot = next(iter(leases))
                moving = self._move(link, slot, leases[slot])
                self._moving[link] = asyncio.get_running_loop().create_task(moving)

    def forget_buffers(self) -> None:
        """Give back what is kept for the next copy."""
        self._spare.clear()

    async def close(self) -> None:
        """Wait for the copies that are under way."""
        under_way = (*self._moving.values(), *self._unmapping)
        await asyncio.gather(*under_way, return_exceptions=True)

    def _free(self, link: WorkerLink, slot: int) -> None:
        leases = self._in_slots.get(link, {})
        leases.pop(slot, None)
        if not leases:
            self._in_slots.pop(link, None)
        link.release(slot)
        self._on_free(link)

    async def _move(self, link: WorkerLink, slot: int, lease: ImageLease) -> None:
        arena = link.arena
        try:
            buffer = self._buffer(arena.slot_bytes)
            view = memoryview(buffer)[: len(lease)]
            # Of its own: the worker may end, and its descriptors with it.
            fd = os.dup(arena.fileno())
            await self._threads.run(
                lambda: _read(fd, view, slot * arena.slot_bytes), unstarted=lambda: os.close(fd)
            )
        except (OSError, MemoryError, OverloadedError) as error:
            self._note_hindrance(link, error)
            asyncio.get_running_loop().call_later(_AGAIN_S, self._on_free, link)
            return
        finally:
            del self._moving[link]
        self._is_hindered = False
        if lease.is_over:
            self._keep(buffer)
            # Its slot may have been taken since, while nobody else's answer was to be copied.
            self._on_free(link)
            return
        self.num_moved += 1
        lease.move(view, lambda: self._keep(buffer))

    def _note_hindrance(self, link: WorkerLink, error: Exception) -> None:
        """Say it once: it is tried again many times a second."""
        if not self._is_hindered:
            self._is_hindered = True
            logger.warning("%s: an answer cannot be copied out of its slot: %s", link.name, error)

    def _buffer(self, size: int) -> mmap.mmap:
        while self._spare:
            buffer = self._spare.pop()
            if len(buffer) == size:
                return buffer
        return mmap.mmap(-1, size)

    def _keep(self, buffer: mmap.mmap) -> None:
        if len(self._spare) < _BUFFERS_KEPT:
            self._spare.append(buffer)
        else:
            unmapping = asyncio.get_running_loop().create_task(_unmap(buffer))
            self._unmapping.add(unmapping)
            unmapping.add_done_callback(self._unmapping.discard)


async def _unmap(buffer: mmap.mmap) -> None:
    """Give the pages back in pieces, with a turn for everybody else after each."""
    for start in range(0, len(buffer), _UNMAPPED_BYTES):
        buffer.madvise(mmap.MADV_DONTNEED, start, min(_UNMAPPED_BYTES, len(buffer) - start))
        await asyncio.sleep(0)


def _read(fd: int, into: memoryview, start: int) -> None:
    try:
        done = 0
        while done < len(into):
            count = os.preadv(fd, [into[done:]], start + done)
            if count == 0:
                raise OSError("the arena ends early")
            done += count
    finally:
        os.close(fd)
