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

FACTS = ImageFacts(1, 1, "png", False, (1, 1), (1, 2, 2), 1, (4, 3, 14, 14), 9, "0" * 64, 1, 1)


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

    def say(self, message: messages.Message, payload: bytes = b"") -> None:
        self.pool.on_message(self.link, message, payload)

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


SLOT_BYTES = make_plan().workers[0].slot_bytes
FAILED = messages.JobFailed(0, "MediaError", "no image", None, None)
IMAGE = messages.ImageResult(0, FACTS, 9)
TOKENS = messages.TokensResult(0, (), 0)


@pytest.mark.parametrize("nbytes", [0, SLOT_BYTES])
def test_an_answer_may_fill_its_slot(nbytes: int) -> None:
    async def run() -> None:
        bench = Bench()
        asked = bench.image()
        await asyncio.sleep(0)
        bench.say(replace(IMAGE, id=bench.image_id, nbytes=nbytes))
        lease = await asyncio.wait_for(asked, 30)
        assert (len(lease), len(lease.pixels)) == (nbytes, nbytes)
        assert not bench.link.is_gone
        lease.release()
        await bench.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("answer", "payload", "is_image"),
    [
        (replace(IMAGE, nbytes=SLOT_BYTES + 1), b"", True),
        (replace(IMAGE, nbytes=-1), b"", True),
        (replace(IMAGE, nbytes=cast(Any, "9")), b"", True),
        (replace(IMAGE, nbytes=cast(Any, 9.5)), b"", True),
        (replace(IMAGE, nbytes=cast(Any, True)), b"", True),
        (replace(IMAGE, gpu_fallback="a label of its own"), b"", True),
        (replace(IMAGE, gpu_fallback=cast(Any, {})), b"", True),
        (replace(FAILED, error=cast(Any, 3)), b"", True),
        (replace(FAILED, message=cast(Any, None)), b"", False),
        (replace(FAILED, hint=cast(Any, {})), b"", False),
        (TOKENS, b"", True),
        (IMAGE, b"", False),
        (TOKENS, b"123", False),
    ],
)
def test_an_answer_that_cannot_be_is_the_end_of_its_worker_and_not_of_the_job(
    answer: messages.Answer, payload: bytes, is_image: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        bench = Bench()
        asked = bench.image() if is_image else asyncio.ensure_future(bench.pool.text(b"x"))
        await asyncio.sleep(0)
        job = bench.link.image_job if is_image else bench.link.text_job
        assert job is not None
        bench.say(replace(answer, id=job.id), payload)
        await asyncio.sleep(0)
        assert bench.link.is_gone
        assert not asked.done()
        assert bench.link.job(job.id) is job
        assert bench.pool.counts.gpu_fallbacks == {}
        await bench.close()
        await asyncio.wait([asked])

    asyncio.run(run())
    assert "an answer that cannot be; killing it" in caplog.text
