"""Of several faults in one request the earliest piece's is told, whichever came first."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kimi_serve.launcher.front.work import _all  # pyright: ignore[reportPrivateUsage]


async def _piece(name: str, after: asyncio.Event, then: asyncio.Event, *, fails: bool) -> str:
    await after.wait()
    then.set()
    if fails:
        raise ValueError(name)
    return name


def _now() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


def test_the_earliest_fault_is_told_though_a_later_one_came_first() -> None:
    async def run() -> Any:
        second_failed = asyncio.Event()
        pieces = [
            _piece("first", second_failed, asyncio.Event(), fails=True),
            _piece("second", _now(), second_failed, fails=True),
        ]
        return await _all(pieces)

    with pytest.raises(ValueError, match="first"):
        asyncio.run(run())


def test_what_stands_behind_a_fault_is_cancelled() -> None:
    async def run() -> Any:
        never = asyncio.Event()
        pieces = [
            _piece("fine", _now(), asyncio.Event(), fails=False),
            _piece("faulty", _now(), asyncio.Event(), fails=True),
            _piece("behind", never, asyncio.Event(), fails=False),
        ]
        return await asyncio.wait_for(_all(pieces), 30)

    with pytest.raises(ValueError, match="faulty"):
        asyncio.run(run())


def test_all_results_in_order() -> None:
    async def run() -> list[str]:
        last_is_done = asyncio.Event()
        pieces = [
            _piece("a", last_is_done, asyncio.Event(), fails=False),
            _piece("b", _now(), last_is_done, fails=False),
        ]
        return await _all(pieces)

    assert asyncio.run(run()) == ["a", "b"]
    assert asyncio.run(_all([])) == []
