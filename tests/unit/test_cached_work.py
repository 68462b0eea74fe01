"""The image cache in a request: only whole answers are kept, whatever ends the work before."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, cast

import pytest
from image_samples import SPEC

from kimi_serve.launcher.front.admission import Admission, Hold
from kimi_serve.launcher.front.image_cache import ENTRY_OVERHEAD_BYTES, ImageCache, PlanImages
from kimi_serve.launcher.front.media import Media
from kimi_serve.launcher.front.work import Preprocessed, Work, run_work
from kimi_serve.preprocess.workers.leases import ImageLease
from kimi_serve.preprocess.workers.pool import Pool
from kimi_serve.schemas.errors import MediaError, OverloadedError, UnavailableError
from kimi_serve.schemas.image_facts import ImageFacts
from kimi_serve.schemas.messages import ImageResult
from kimi_serve.schemas.settings import Settings

REFERENCE = b"data:,picture"
NBYTES = 5 << 22  # copied in several turns of the loop


class StandInPool:
    """Leases pixels, or does what `act` does while its worker has the image."""

    def __init__(self, act: Callable[[], None] = lambda: None) -> None:
        self.asked = 0
        self.ended = 0
        self.act = act
        self.leased = asyncio.Event()

    async def lease(self, *_: object, **__: object) -> ImageLease:
        self.asked += 1
        self.act()
        facts = ImageFacts(1, 1, "png", False, (1, 1), (1, 2, 2), 1, (4, 3, 14, 14), NBYTES,
                           "0" * 64, 1, 1)  # fmt: skip
        pixels = bytearray(b"\x07" * NBYTES)

        def end() -> None:
            # The slot belongs to the next image now.
            pixels[:] = bytes(NBYTES)
            self.ended += 1

        self.leased.set()
        return ImageLease(ImageResult(1, facts, NBYTES), memoryview(pixels), end)


class Front:
    """A cache and what a request passes before it."""

    def __init__(self, max_held: int = 2**30, max_kept: int = 2**30) -> None:
        self.cache = ImageCache()
        self.cache.limit(max_kept)
        self.admission = Admission(2**30, max_held)
        self.media = Media(Settings(), self.admission, self._ignore)

    def _ignore(self, *_: object) -> None:
        pass

    async def ask(self, pool: StandInPool) -> Preprocessed:
        with Hold(self.admission) as hold:
            return await self.work(pool, hold)

    async def work(self, pool: StandInPool, hold: Hold) -> Preprocessed:
        return await run_work(
            Work((REFERENCE,), None),
            cast(Pool, cast(Any, pool)),
            hold,
            encoding="raw",
            max_response_bytes=2**30,
            media=self.media,
            kept=PlanImages(self.cache, SPEC),
        )


def test_the_second_answer_is_the_first() -> None:
    async def run() -> None:
        front, pool = Front(), StandInPool()
        first, second = await front.ask(pool), await front.ask(pool)
        assert (first.were_kept, second.were_kept) == ((False,), (True,))
        assert pool.asked == 1
        assert first.pixels[0] == second.pixels[0] == b"\x07" * NBYTES
        assert first.images == second.images
        assert front.cache.held_bytes == NBYTES + ENTRY_OVERHEAD_BYTES
        assert front.admission.held_bytes == 0

    asyncio.run(run())


@pytest.mark.parametrize("error", [MediaError("damaged"), UnavailableError("no worker")])
def test_a_fault_is_not_kept(error: Exception) -> None:
    def fail() -> None:
        raise error

    async def run() -> None:
        front, pool = Front(), StandInPool(fail)
        for _ in range(2):
            with pytest.raises(type(error)):
                await front.ask(pool)
        assert pool.asked == 2
        assert len(front.cache) == 0

    asyncio.run(run())


@pytest.mark.parametrize("turns", range(6))
def test_a_client_that_leaves_in_the_midst_keeps_nothing(turns: int) -> None:
    async def run() -> None:
        front, pool = Front(), StandInPool()
        asking = asyncio.ensure_future(front.ask(pool))
        await pool.leased.wait()
        for _ in range(turns):
            await asyncio.sleep(0)
        asking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asking
        assert pool.ended == 1
        assert front.admission.held_bytes == 0
        # Nothing, or the whole.
        assert (await front.ask(StandInPool())).pixels[0] == b"\x07" * NBYTES

    asyncio.run(run())


def test_a_hit_counts_against_the_bound_of_answers() -> None:
    async def run() -> None:
        front, pool = Front(max_held=NBYTES + 1000), StandInPool()
        await front.ask(pool)
        with Hold(front.admission) as other:
            other.take(2000)
            with pytest.raises(OverloadedError):
                await front.ask(pool)
        assert pool.asked == 1

    asyncio.run(run())


def test_what_is_too_large_to_keep_is_not_copied() -> None:
    async def run() -> None:
        front, pool = Front(max_kept=NBYTES + ENTRY_OVERHEAD_BYTES - 1), StandInPool()
        with Hold(front.admission) as hold:
            done = await front.work(pool, hold)
            (pixels,) = done.pixels
            assert isinstance(pixels, ImageLease)
            assert pool.ended == 0
        assert pool.ended == 1
        assert len(front.cache) == 0

    asyncio.run(run())
