"""Clients as they come: those that leave, and those that never finish asking."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from starlette.requests import Request
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from kimi_serve.schemas.errors import ClientGoneError

Result = TypeVar("Result")

# A connection has this long to send the whole head of a request.
HEAD_TIMEOUT_S = 20.0


async def while_connected(request: Request, work: Awaitable[Result]) -> Result:
    """Give up the work when the client goes away."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_disconnect(request))
    try:
        await asyncio.wait([working, leaving], return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGoneError("the client closed the connection")
        return working.result()
    finally:
        working.cancel()
        leaving.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


class TimedHttpProtocol(HttpToolsProtocol):
    """uvicorn's protocol, which closes connections whose request head does not come to an end."""

    _head: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_head()

    def on_message_begin(self) -> None:
        self._expect_head()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._stop_expecting()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_expecting()
        super().connection_lost(exc)

    def _expect_head(self) -> None:
        self._stop_expecting()
        self._head = self.loop.call_later(HEAD_TIMEOUT_S, self.transport.close)

    def _stop_expecting(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None
