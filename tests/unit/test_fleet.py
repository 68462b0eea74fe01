"""What the fleet waits for before it asks for a worker."""

from __future__ import annotations

import asyncio

from plan_factories import make_plan

from kimi_serve.preprocess.workers.pool import Pool


def test_a_fork_server_that_is_lost_at_once_is_waited_for_again() -> None:
    async def run() -> None:
        plan = make_plan()
        pool = Pool(
            plan.worker_specs(),
            base_env={},
            start_timeout_s=1,
            job_timeout_s=1,
            image_timeout_s=1,
            text_timeout_s=1,
        )
        fleet = pool._fleet  # pyright: ignore[reportPrivateUsage]
        forking = fleet._is_forking  # pyright: ignore[reportPrivateUsage]
        waiting = asyncio.ensure_future(
            fleet._until_forking()  # pyright: ignore[reportPrivateUsage]
        )
        await asyncio.sleep(0)
        forking.set()
        forking.clear()  # lost before the waiter had its turn
        for _ in range(5):
            await asyncio.sleep(0)
        assert not waiting.done()
        forking.set()
        await asyncio.wait_for(waiting, 30)

    asyncio.run(run())
