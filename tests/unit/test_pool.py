"""What becomes of jobs, with a worker that never answers by itself."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, cast

import pytest
from plan_factories import make_plan

from kimi_serve.preprocess.workers.leases import SMALL_BYTES
from kimi_serve.preprocess.workers.pool import Pool
from kimi_serve.preprocess.workers.worker_link import WorkerLink
from kimi_serve.schemas import errors, messages
from kimi_serve.schemas.image_facts import ImageFacts


class Bench:
    """A pool of one worker, which is ready and has one slot."""

    def __init__(self, job_timeout_s: float = 60) -> None:
        spec = replace(make_plan().workers[0], slots=1)
        self.pool = Pool(
            [spec],
            base_env={},
            start_timeout_s=60,
            job_timeout_s=job_timeout_s,
            image_timeout_s=60,
            text_timeout_s=60,
        )
        self.link = WorkerLink(spec)
        self.link.report = cast(messages.WorkerReport, cast(Any, "ready"))
        self.pool._fleet._links[0] = self.link

    def image(self) -> asyncio.Task[Any]:
        return asyncio.ensure_future(self.pool.lease(b"x", "raw", is_file=True))

    @property
    def image_id(self) -> int:
        assert self.link.image_job is not None
        return self.link.image_job.id

    def answer(self) -> None:
        nbytes = 2 * SMALL_BYTES
        facts = ImageFacts(1, 1, "png", False, (1, 1), (1, 2, 2), 1, (4, 3, 14, 14), nbytes,
                           "0" * 64, 1, 1)  # fmt: skip
        self.pool.on_message(self.link, messages.ImageResult(self.image_id, facts, nbytes), b"")

    def refuse(self) -> None:
        failed = messages.JobFailed(self.image_id, "MediaError", "no image", None, None)
        self.pool.on_message(self.link, failed, b"")

    async def close(self) -> None:
        self.link.end = "stopped"  # or its end would be waited for
        await self.pool.close()


def test_a_closed_pool_gives_up_what_its_workers_have() -> None:
    async def run() -> None:
        bench = Bench(job_timeout_s=0.2)
        waiting = [bench.image(), asyncio.ensure_future(bench.pool.text(b"x")), bench.image()]
        left = asyncio.ensure_future(bench.pool.text(b"y"))
        await asyncio.sleep(0)
        assert (bench.link.image_job is not None, bench.pool.num_queued) == (True, 2)
        left.cancel()
        await bench.close()
        for answered in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(answered, errors.UnavailableError)
        await asyncio.sleep(0.4)  # no clock goes on, and no shared count with it
        assert bench.pool.counts.overdue == 0

    asyncio.run(run())


def test_the_clock_of_what_nobody_waits_for_ends_with_the_pool() -> None:
    async def run() -> None:
        bench = Bench(job_timeout_s=0.2)
        left = bench.image()
        await asyncio.sleep(0)
        left.cancel()
        await asyncio.wait([left])
        await bench.close()
        await asyncio.sleep(0.4)
        assert bench.pool.counts.overdue == 0

    asyncio.run(run())


def test_the_slot_of_an_answer_that_nobody_saw_goes_to_the_next_at_once() -> None:
    async def run() -> None:
        bench = Bench()
        first = bench.image()
        await asyncio.sleep(0)
        second = bench.image()
        await asyncio.sleep(0)
        bench.answer()
        first.cancel()  # in the same turn
        await asyncio.wait([first])
        assert bench.pool.num_queued == 0
        bench.answer()
        (await asyncio.wait_for(second, 30)).release()
        await bench.close()

    asyncio.run(run())


@pytest.mark.parametrize("is_refused", [False, True])
def test_what_an_image_without_a_reader_took_is_given_back(
    monkeypatch: pytest.MonkeyPatch, is_refused: bool
) -> None:
    monkeypatch.setattr("kimi_serve.preprocess.workers.pool.QUIET_S", 0.01)

    async def run() -> None:
        bench, tidied = Bench(), asyncio.Event()
        monkeypatch.setattr(bench.link, "tidy", tidied.set)
        asked = bench.image()
        await asyncio.sleep(0)
        if is_refused:
            bench.refuse()
        else:
            bench.answer()
            asked.cancel()
        await asyncio.wait([asked])
        assert asked.cancelled() or isinstance(asked.exception(), errors.MediaError)
        await asyncio.wait_for(tidied.wait(), 30)
        await bench.close()

    asyncio.run(run())
