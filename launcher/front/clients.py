"""Clients as they come: those that leave, and those that never finish asking."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar, cast

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from kimi_serve.schemas.errors import ClientGoneError

from .answers import plain_error
from .middleware import SAFE_HEADERS

Result = TypeVar("Result")

# A connection has this long to send the whole head of a request.
HEAD_TIMEOUT_S = 20.0
# The parser keeps a head, or the trailers of a body, until they are whole; it knows no bound.
MAX_UNFINISHED_BYTES = 64 * 2**10
# Where the protocol leaves the means to cut a connection for the application.
ABORT = "kimi_serve.abort"


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


class SendDeadline:
    """Cuts the connection of a client that does not take its answer in time."""

    def __init__(self, app: ASGIApp, timeout_s: float) -> None:
        self._app = app
        self._timeout_s = timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        deadline: float | None = None

        async def send_in_time(message: Message) -> None:
            nonlocal deadline
            deadline = deadline or asyncio.get_running_loop().time() + self._timeout_s
            try:
                async with asyncio.timeout_at(deadline):
                    await send(message)
            except TimeoutError:
                # Closing would wait for the bytes that nobody takes.
                scope[ABORT]()

        await self._app(scope, receive, send_in_time)


class TimedHttpProtocol(HttpToolsProtocol):
    """uvicorn's protocol, with an end for connections that ask for nothing or never finish asking.

    Every end is an abort: a close waits until the client has read what was written.
    """

    _head: asyncio.TimerHandle | None = None
    _unfinished_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        self._unfinished_bytes += len(data)
        super().data_received(data)
        if self._unfinished_bytes > MAX_UNFINISHED_BYTES and not self.transport.is_closing():
            self._refuse(431, f"a head of more than {MAX_UNFINISHED_BYTES} bytes")
            return
        # uvicorn has None here before the first request, and says otherwise.
        cycle = cast("RequestResponseCycle | None", self.cycle)
        is_between = cycle is None or cycle.response_complete
        if is_between and self._head is None and not self.transport.is_closing():
            self._expect_head()

    def on_message_begin(self) -> None:
        self._expect_head()
        super().on_message_begin()
        self.scope[ABORT] = self.transport.abort  # type: ignore[literal-required]

    def on_headers_complete(self) -> None:
        self._unfinished_bytes = 0
        self._stop_expecting()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unfinished_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._unfinished_bytes = 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP, in the form of every other error."""
        self._refuse(400, "this is not an HTTP/1.1 request")

    def _refuse(self, status: int, message: str) -> None:
        """End a connection whose next bytes mean nothing any more."""
        self._stop_expecting()
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if cycle is not None and not cycle.response_complete:
            self.transport.abort()  # an answer is under way: nothing may stand in the midst of it
            return
        answer = plain_error(status, message, code="http_error", headers=SAFE_HEADERS)
        head = [(b"connection", b"close"), *answer.raw_headers]
        lines = [STATUS_LINE[status], *(name + b": " + value + b"\r\n" for name, value in head)]
        self.transport.write(b"".join([*lines, b"\r\n", bytes(answer.body)]))
        self.transport.close()

    def timeout_keep_alive_handler(self) -> None:
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_expecting()
        super().connection_lost(exc)

    def _expect_head(self) -> None:
        self._stop_expecting()
        self._head = self.loop.call_later(HEAD_TIMEOUT_S, self.transport.abort)

    def _stop_expecting(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None
