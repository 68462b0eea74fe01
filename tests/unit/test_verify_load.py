"""A load that fails: nothing of it goes on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any, cast

import pytest
from image_samples import SPEC

from kimi_serve.launcher.verify import fleet
from kimi_serve.launcher.verify.gpu_memory import GpuMemory
from kimi_serve.launcher.verify.images import Sample
from kimi_serve.schemas.errors import UnavailableError
from kimi_serve.schemas.settings import Settings


class Driver:
    """Says nothing of any process, again and again."""

    def used_mib(self) -> float:
        return 1.0

    def of(self, _pids: object) -> None:
        return None

    def by_process(self) -> dict[int, float]:
        return {}


class FailingPool:
    """Makes the first images, which warm it up, and no other."""

    def __init__(self) -> None:
        self._left = 2

    def snapshots(self) -> list[Any]:
        return []

    @contextlib.asynccontextmanager
    async def image(self, *_: object, **__: object) -> AsyncGenerator[None]:
        self._left -= 1
        await asyncio.sleep(0)
        if self._left < 0:
            raise UnavailableError("no worker is left")
        yield


def test_nobody_looks_at_the_gpu_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextlib.asynccontextmanager
    async def running(*_: object) -> AsyncGenerator[FailingPool]:
        yield FailingPool()

    monkeypatch.setattr(fleet, "running", running)

    async def run() -> None:
        with pytest.raises(UnavailableError):
            await fleet.load(
                fleet.Configuration("x", SPEC),
                1,
                [Sample("x", b"")],
                Settings(),
                {},
                seconds=1,
                memory=cast(GpuMemory, cast(Any, Driver())),
            )
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(run())
