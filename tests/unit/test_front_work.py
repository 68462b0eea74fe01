"""The images of one request end together: the earliest fault wins, the rest is cancelled once."""

from __future__ import annotations

import asyncio
import gc
from typing import Any, cast

import pytest

from kimi_serve.launcher.front.admission import Admission, Hold
from kimi_serve.launcher.front.media import Media
from kimi_serve.launcher.front.work import Work, run_work
from kimi_serve.preprocess.workers.leases import ImageLease
from kimi_serve.preprocess.workers.pool import Pool
from kimi_serve.schemas.errors import MediaError
from kimi_serve.schemas.settings import Settings

REFERENCES = tuple(b"data:,%d" % number for number in range(6))


class FailingPool:
    """Every image of `order` fails in its turn; the others wait, and take turns to clean up."""

    def __init__(self, order: tuple[int, ...]) -> None:
        self.order = order
        self.ended = 0
        self.interrupted = 0

    async def lease(self, content: bytes, *_: object, **__: object) -> ImageLease:
        number = int(content.rpartition(b",")[2])
        try:
            if number in self.order:
                for _turn in range(1 + 3 * self.order.index(number)):
                    await asyncio.sleep(0)
                raise MediaError(f"picture {number}")
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await self._clean_up()
            raise
        finally:
            self.ended += 1
        raise AssertionError

    async def _clean_up(self) -> None:
        try:
            for _turn in range(20):
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.interrupted += 1
            raise


class ToldPool:
    """Gives what its answer is told."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.answer: asyncio.Future[ImageLease] = asyncio.get_running_loop().create_future()

    async def lease(self, *_: object, **__: object) -> ImageLease:
        self.asked.set()
        return await self.answer


def _ignore(*_: object) -> None:
    pass


@pytest.mark.parametrize("order", [(0,), (3, 0), (4, 2, 0), (5, 4, 3, 2, 1, 0), (0, 5)])
def test_what_ends_because_of_a_fault_is_cancelled_once(order: tuple[int, ...]) -> None:
    async def run() -> None:
        admission = Admission(2**20, 2**20)
        pool = FailingPool(order)
        with Hold(admission) as hold:
            with pytest.raises(MediaError, match=f"picture {min(order)}") as caught:
                await run_work(
                    Work(REFERENCES, None),
                    cast(Pool, cast(Any, pool)),
                    hold,
                    encoding="raw",
                    max_response_bytes=2**20,
                    media=Media(Settings(), admission, _ignore),
                )
            assert caught.value.param == f"images[{min(order)}]"
        assert pool.interrupted == 0
        # Nobody is left behind either.
        assert pool.ended == len(REFERENCES)

    asyncio.run(run())


def test_a_fault_that_comes_with_a_cancellation_is_nobodys_loss() -> None:
    async def run() -> None:
        complaints: list[Any] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: complaints.append(context))
        admission, pool = Admission(2**20, 2**20), ToldPool()
        with Hold(admission) as hold:
            asking = asyncio.ensure_future(
                run_work(
                    Work(REFERENCES[:1], None),
                    cast(Pool, cast(Any, pool)),
                    hold,
                    encoding="raw",
                    max_response_bytes=2**20,
                    media=Media(Settings(), admission, _ignore),
                )
            )
            await pool.asked.wait()
            await asyncio.sleep(0)
            pool.answer.set_exception(MediaError("damaged"))
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        del asking, pool
        gc.collect()
        assert complaints == []

    asyncio.run(run())
