"""Answers in slots: read in place, copied out when the slot is needed, given back once."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from typing import Any, cast

import pytest
from in_loop import in_loop
from scarce import descriptors_left, no_threads, open_descriptors

from kimi_serve.preprocess.workers.arena import Arena
from kimi_serve.preprocess.workers.leases import SMALL_BYTES, ImageLease, Leases
from kimi_serve.preprocess.workers.worker_link import WorkerLink
from kimi_serve.schemas.image_facts import ImageFacts
from kimi_serve.schemas.messages import ImageResult

SLOT_BYTES = 4 * SMALL_BYTES
BIG = 3 * SMALL_BYTES + 5


class FakeLink:
    """A worker's slots, without the worker."""

    def __init__(self, slots: int = 2) -> None:
        self.name = "worker 0"
        self.arena = Arena.create(slots, SLOT_BYTES)
        self.is_usable = True
        self.free = list(range(slots))

    @property
    def is_full(self) -> bool:
        return not self.free

    def release(self, slot: int) -> None:
        assert slot not in self.free
        self.free.append(slot)

    def write(self, slot: int, byte: int) -> None:
        os.pwrite(self.arena.fileno(), bytes([byte]) * SLOT_BYTES, slot * SLOT_BYTES)


class Bench:
    def __init__(self, slots: int = 2) -> None:
        self.link = FakeLink(slots)
        self.freed = 0
        # Whether an image waits for a slot, as the pool says it.
        self.is_waited_for = False
        self.leases = Leases(self._count)

    def _count(self, _: WorkerLink) -> None:
        self.freed += 1
        if self.is_waited_for:
            self.make_room()

    async def has_room(self) -> None:
        async with asyncio.timeout(30):
            while self.link.is_full:
                await asyncio.sleep(0.01)

    def answer(self, byte: int, nbytes: int = BIG) -> ImageLease:
        slot = self.link.free.pop(0)
        self.link.write(slot, byte)
        facts = ImageFacts(1, 1, "png", False, (1, 1), (1, 2, 2), 1, (4, 3, 14, 14), nbytes,
                           "0" * 64, 1, 1)  # fmt: skip
        return self.leases.add(self._worker, slot, ImageResult(1, facts, nbytes))

    def make_room(self) -> None:
        self.leases.make_room([self._worker])

    @property
    def _worker(self) -> WorkerLink:
        return cast(WorkerLink, cast(Any, self.link))


@in_loop
async def test_an_answer_is_read_where_it_was_written() -> None:
    bench = Bench()
    lease = bench.answer(1)
    bench.link.write(0, 9)  # seen through the lease: it is the same memory
    assert bytes(lease.pixels) == b"\x09" * BIG
    assert bench.link.free == [1]
    lease.release()
    lease.release()
    assert (bench.link.free, bench.freed) == ([1, 0], 1)


@in_loop
async def test_a_small_answer_keeps_no_slot() -> None:
    bench = Bench()
    lease = bench.answer(1, SMALL_BYTES)
    assert bench.link.free == [1, 0]
    bench.link.write(0, 9)
    assert bytes(lease.pixels) == b"\x01" * SMALL_BYTES
    lease.release()
    assert bench.freed == 1


@in_loop
async def test_the_oldest_answer_of_a_full_worker_moves_out_and_stays_the_same() -> None:
    bench = Bench()
    first, second = bench.answer(1), bench.answer(2)
    bench.make_room()
    bench.make_room()  # one at a time
    await bench.leases.close()
    assert (bench.link.free, bench.leases.num_moved) == ([0], 1)
    bench.link.write(0, 9)
    assert bytes(first.pixels) == b"\x01" * BIG
    assert bytes(second.pixels) == b"\x02" * BIG
    first.release()
    second.release()
    assert bench.freed == 2


@in_loop
async def test_a_worker_with_a_free_slot_and_one_that_ended_are_left_alone() -> None:
    bench = Bench()
    bench.answer(1)
    bench.make_room()
    bench.answer(2)
    bench.link.is_usable = False
    bench.make_room()
    await bench.leases.close()
    assert bench.leases.num_moved == 0


@in_loop
async def test_an_answer_that_ends_while_it_moves_frees_its_slot_once() -> None:
    bench = Bench(1)
    lease = bench.answer(1)
    bench.make_room()
    await asyncio.sleep(0)
    lease.release()
    await bench.leases.close()
    assert (bench.link.free, bench.leases.num_moved) == ([0], 0)


@in_loop
async def test_a_slot_that_is_taken_while_its_last_answer_moves_is_made_free_too() -> None:
    bench = Bench(1)
    bench.is_waited_for = True
    lease = bench.answer(1)
    bench.make_room()
    await asyncio.sleep(0)
    lease.release()
    kept = bench.answer(2)  # by the next in the queue, at once
    await bench.has_room()
    assert bytes(kept.pixels) == b"\x02" * BIG
    await bench.leases.close()


@pytest.mark.parametrize("scarce", [descriptors_left, no_threads])
def test_room_is_made_once_what_was_scarce_is_there_again(
    scarce: Callable[[], contextlib.AbstractContextManager[None]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def run() -> None:
        bench = Bench(1)
        bench.is_waited_for = True
        lease = bench.answer(1)
        before = open_descriptors()
        with scarce():
            bench.make_room()
            await asyncio.sleep(0.35)  # some tries
        assert bench.link.is_full
        await bench.has_room()
        assert bytes(lease.pixels) == b"\x01" * BIG
        await bench.leases.close()
        assert open_descriptors() <= before

    asyncio.run(run())
    assert [record.levelname for record in caplog.records] == ["WARNING"]


@in_loop
async def test_buffers_are_used_again_and_never_by_two() -> None:
    bench = Bench(1)
    held: list[ImageLease] = []
    for byte in range(30):
        held.append(bench.answer(byte))
        bench.make_room()
        await bench.leases.close()
        if byte % 3 == 2:
            held.pop(0).release()
    for lease in held:
        assert bytes(lease.pixels) == bytes([lease.pixels[0]]) * BIG
    assert len({lease.pixels[0] for lease in held}) == len(held) == 20
    for lease in held:
        lease.release()
    await bench.leases.close()


@in_loop
async def test_what_cannot_be_copied_stays_where_it_is() -> None:
    bench = Bench(1)
    lease = bench.answer(1)
    bench.link.arena.close_descriptor()
    bench.make_room()
    await bench.leases.close()
    assert bytes(lease.pixels) == b"\x01" * BIG
    lease.release()
    assert bench.freed == 1


def test_a_closed_arena_goes_with_its_last_view() -> None:
    arena = Arena.create(1, SLOT_BYTES)
    os.pwrite(arena.fileno(), b"x", 0)
    name = os.readlink(f"/proc/self/fd/{arena.fileno()}")
    before = mappings(name)
    view = arena.slot(0)
    arena.close()
    arena.close()
    assert bytes(view[:1]) == b"x"
    assert mappings(name) == before
    view.release()
    assert mappings(name) == before - 1


def mappings(name: str) -> int:
    with open("/proc/self/maps", encoding="utf-8") as maps:
        return sum(name in line for line in maps)
