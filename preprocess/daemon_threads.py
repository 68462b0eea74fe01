"""Blocking calls beside the event loop, which do not hold up the end of the process."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from kimi_serve.schemas.errors import OverloadedError

Result = TypeVar("Result")
Discard = Callable[[Result], None]


def _nothing() -> None:
    """Clean up after what needs nothing."""


class DaemonThreads:
    """At most `limit` blocking calls at a time, each in a thread of its own.

    An executor would wait for a name server or a network file system that hangs when the process
    ends; these threads end with it. A call that nobody waits for any more keeps its place until
    it returns.
    """

    def __init__(self, limit: int) -> None:
        self._free = asyncio.Semaphore(limit)

    async def run(
        self,
        work: Callable[[], Result],
        *,
        discard: Discard[Result] | None = None,
        unstarted: Callable[[], None] | None = None,
    ) -> Result:
        """Give what `work` gives.

        When the caller is cancelled, `discard` gets the result. `unstarted` is called when there
        will be none. Raises OverloadedError when no thread is to be had.
        """
        unstarted = unstarted or _nothing
        try:
            await self._free.acquire()
        except asyncio.CancelledError:
            unstarted()
            raise
        done: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        try:
            self._start(work, done, discard)
        except (RuntimeError, MemoryError):  # its place would stay taken for ever
            self._free.release()
            unstarted()
            raise OverloadedError(
                "the server can start no thread for this now (its limit of processes or of memory "
                "is reached): try again later"
            ) from None
        try:
            return await done
        except asyncio.CancelledError:
            # The result may have come in the same turn as the cancellation.
            if discard is not None and not done.cancelled() and done.exception() is None:
                discard(done.result())
            raise

    def _start(
        self,
        work: Callable[[], Result],
        done: asyncio.Future[Result],
        discard: Discard[Result] | None,
    ) -> None:
        loop = asyncio.get_running_loop()

        def settle(outcome: Future[Result]) -> None:
            self._free.release()
            error = outcome.exception()
            if done.done():
                if discard is not None and error is None:
                    discard(outcome.result())
            elif error is not None:
                done.set_exception(error)
            else:
                done.set_result(outcome.result())

        def call() -> None:
            outcome = Future[Result]()
            try:
                outcome.set_result(work())
            except BaseException as error:  # noqa: BLE001 - carried to whoever waits
                outcome.set_exception(error)
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(settle, outcome)

        threading.Thread(target=call, name="blocking call", daemon=True).start()
