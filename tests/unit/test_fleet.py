"""How workers are brought up, again and again, by a fork server that is only asked."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from in_loop import in_loop
from plan_factories import make_plan

from kimi_serve.preprocess.workers.fleet import STOP_GRACE_S
from kimi_serve.preprocess.workers.jobs import Death
from kimi_serve.preprocess.workers.pool import Pool
from kimi_serve.preprocess.workers.worker_link import WorkerLink
from kimi_serve.schemas.worker import WorkerSpec

NO_DESCRIPTORS = "Too many open files"
KILLED = 9  # as a wait status


class FakeClient:
    """A fork server that can be asked, or started, only after so many faults."""

    pid: int | None = None

    def __init__(self) -> None:
        self.faults = 0
        self.start_faults = 0
        self.asked: list[int] = []
        self.starts = 0

    def start(self) -> None:
        self.starts += 1
        if self.start_faults:
            self.start_faults -= 1
            raise OSError(24, NO_DESCRIPTORS)

    def attach(self, _: object) -> None:
        """Have nothing to say."""

    async def spawn(self, spec: WorkerSpec, _fds: Sequence[int]) -> None:
        if self.faults:
            self.faults -= 1
            raise OSError(24, NO_DESCRIPTORS)
        self.asked.append(spec.index)

    async def end(self) -> tuple[int, list[str]]:
        return KILLED, []

    async def close(self) -> None:
        """Have nothing to close."""


def make_pool() -> Pool:
    return Pool(
        make_plan().worker_specs(),
        base_env={},
        start_timeout_s=60,
        job_timeout_s=1,
        image_timeout_s=1,
        text_timeout_s=1,
    )


class Bench:
    """A fleet of one worker that was asked for."""

    def __init__(self, *, has_started: bool) -> None:
        self.client = FakeClient()
        self.fleet = fleet = make_pool()._fleet
        fleet._client = cast(Any, self.client)
        fleet._failure = asyncio.get_running_loop().create_future()
        fleet._is_forking.set()
        fleet.has_started = has_started

    @property
    def link(self) -> WorkerLink:
        return self.fleet.links()[0]

    def lose_worker(self) -> None:
        self.fleet._bury(self.link, Death(0, "killed by SIGKILL", is_crash=False))

    async def is_true(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not condition():
                await asyncio.sleep(0.01)

    async def is_settled(self) -> None:
        """Wait until nothing is under way any more."""
        await self.is_true(lambda: not self.fleet._tasks)


@asynccontextmanager
async def bench(*, has_started: bool = True) -> AsyncGenerator[Bench]:
    made = Bench(has_started=has_started)
    await made.fleet._open(made.fleet._specs[0])
    try:
        yield made
    finally:
        made.link.end = "stopped"  # or its end would be waited for
        await made.fleet.close()


@in_loop
async def test_a_fork_server_that_is_lost_at_once_is_waited_for_again() -> None:
    fleet = make_pool()._fleet
    forking = fleet._is_forking
    waiting = asyncio.ensure_future(fleet._until_forking())
    await asyncio.sleep(0)
    forking.set()
    forking.clear()  # lost before the waiter had its turn
    for _ in range(5):
        await asyncio.sleep(0)
    assert not waiting.done()
    forking.set()
    await asyncio.wait_for(waiting, 30)


@in_loop
async def test_one_worker_that_could_not_be_opened_is_replaced_by_one() -> None:
    async with bench() as made:
        made.client.faults = 5
        made.lose_worker()
        await made.is_true(lambda: made.client.faults == 1)
        # It pauses before the next try; whatever else befalls what could not be opened is no news.
        assert (made.link.state, made.fleet.num_usable) == ("failed", 0)
        made.fleet.on_not_spawned(0, "no memory")
        made.fleet.on_fork_server_lost()
        await made.is_settled()
        assert made.client.asked == [0, 0]
        assert made.fleet._counts.replaced == 1
        assert not made.fleet.has_failed


@in_loop
async def test_nothing_is_waited_for_and_nothing_opened_at_the_end() -> None:
    async with bench() as made:
        made.client.faults = 5
        made.lose_worker()
        await made.is_true(lambda: made.client.faults == 1)
        made.client.faults = 0
        async with asyncio.timeout(STOP_GRACE_S / 2):
            await made.fleet.close()
        assert made.client.asked == [0]


@in_loop
async def test_a_replacement_that_waits_for_its_time_is_not_opened_while_others_stop() -> None:
    async with bench() as made:
        made.client.faults = 4
        made.lose_worker()
        await made.is_true(lambda: made.client.faults == 0)
        made.fleet.is_closing = True  # its pause ends within the grace of the others
        await made.is_settled()
        assert made.client.asked == [0]


@in_loop
async def test_a_fork_server_that_cannot_be_started_yet_is_tried_again() -> None:
    async with bench() as made:
        made.client.start_faults = 5
        made.fleet._is_forking.clear()
        made.fleet._task(made.fleet._restart_fork_server())
        await made.is_true(made.fleet._is_forking.is_set)
        assert made.client.starts == 6
        assert not made.fleet.has_failed


@in_loop
async def test_a_fork_server_that_can_never_be_started_is_given_up_with_the_reason() -> None:
    async with bench(has_started=False) as made:
        made.client.start_faults = 1000
        made.fleet._task(made.fleet._restart_fork_server())
        error = await asyncio.wait_for(made.fleet.failed(), 30)
        assert "cannot be started" in error.message
        assert NO_DESCRIPTORS in error.message
        assert error.hint is not None
        assert "ulimit -n" in error.hint


@pytest.mark.parametrize(("status", "is_failure"), [(1 << 8, True), (KILLED, False)])
def test_only_a_worker_that_exits_by_itself_fails_the_first_start(
    status: int, is_failure: bool
) -> None:
    async def run() -> None:
        async with bench(has_started=False) as made:
            made.link.pid = 1
            made.fleet.on_exited(1, status)
            await made.is_settled()
            assert made.fleet.has_failed == is_failure
            assert made.client.asked == ([0] if is_failure else [0, 0])

    asyncio.run(run())
