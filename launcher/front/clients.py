"""Clients as they come: those that leave, and those that never finish asking."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import socket
import struct
import termios
from collections.abc import Awaitable
from functools import partial
from typing import TypeVar, cast

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from kimi_serve.schemas.errors import ClientGoneError

from .admission import WRITE_NOW
from .answers import plain_error
from .middleware import SAFE_HEADERS

Result = TypeVar("Result")

# A connection has this long to send the whole head of a request.
HEAD_TIMEOUT_S = 20.0
# The parser keeps a head, or the trailers of a body, until they are whole; it knows no bound.
MAX_UNFINISHED_BYTES = 64 * 2**10
# A client that ended its side is asked after this long whether it still listens, and looked at
# as often; one that is refused may go on sending for so long, and so much.
ASK_S = 0.1
LINGER_S = 2.0
MAX_LINGER_BYTES = 4 * 2**20
_CONNECTION_CLOSED = 7  # the kernel's TCP_CLOSE
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
    _is_in_body = False
    _is_refused = False
    _asking: asyncio.TimerHandle | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a request is under way, begins, or its answer has not reached the client."""
        cycle = cast("RequestResponseCycle | None", self.cycle)
        is_asked = cycle is not None and not cycle.response_complete
        return is_asked or self._unfinished_bytes > 0 or self._is_sending()

    def _is_sending(self) -> bool:
        if self.transport.is_closing():
            return False  # the client was told; uvicorn waits for it
        if self.transport.get_write_buffer_size():
            return True
        try:
            number = self.transport.get_extra_info("socket").fileno()
            (size,) = struct.unpack("i", fcntl.ioctl(number, termios.TIOCOUTQ, bytes(4)))
        except OSError:
            return False
        return bool(size)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        self._unfinished_bytes += len(data)
        if self._is_refused:
            if self._unfinished_bytes > MAX_LINGER_BYTES:
                self.transport.abort()
            return
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
        self._is_in_body = True
        self._stop_expecting()
        super().on_headers_complete()
        # uvicorn begins with the next request of a connection before this one is answered.
        self.scope[WRITE_NOW] = partial(self._write_now, self.cycle)  # type: ignore[literal-required]

    def on_body(self, body: bytes) -> None:
        self._unfinished_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._unfinished_bytes = 0
        self._is_in_body = False
        super().on_message_complete()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Answer a client that ends its side after its request, as `nc -N` does.

        One that left looks the same until something is sent to it: an interim answer is, once the
        request takes time. An HTTP/1.0 client knows none, and has left.
        """
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if cycle is None or cycle.response_complete or self._is_in_body or self._unfinished_bytes:
            return False
        if cycle.scope["http_version"] != "1.1":
            return False
        cycle.keep_alive = False
        if self._asking is None:  # the end is read again after a pause
            self._asking = self.loop.call_later(ASK_S, self._ask, cycle)
        return True

    def _ask(self, cycle: RequestResponseCycle) -> None:
        if not (self.pipeline or cycle.response_started or self.transport.is_closing()):
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._asking = self.loop.call_later(ASK_S, self._look)

    def _look(self) -> None:
        """Find out whether the client refused what it was sent: nobody reads from it any more."""
        state = b""
        with contextlib.suppress(OSError):
            found = self.transport.get_extra_info("socket")
            state = found.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
        if state == bytes([_CONNECTION_CLOSED]):
            self.transport.abort()
        elif not self.transport.is_closing():
            self._asking = self.loop.call_later(ASK_S, self._look)

    def _write_now(self, cycle: RequestResponseCycle, data: memoryview) -> int | None:
        """Write past the transport's buffer when nothing is in it: no copy, nothing kept."""
        if cycle.disconnected or self.transport.is_closing():
            return None
        if cycle.chunked_encoding is not False or self.transport.get_write_buffer_size():
            return 0
        try:
            written = os.write(self.transport.get_extra_info("socket").fileno(), data)
        except OSError:  # full, or gone: the transport finds out which
            return 0
        cycle.expected_content_length -= written
        return written

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP, in the form of every other error."""
        self._refuse(400, "this is not an HTTP/1.1 request")

    def _refuse(self, status: int, message: str) -> None:
        """End a connection whose next bytes mean nothing any more."""
        self._stop_expecting()
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if cycle is not None and not cycle.response_complete:
            if not self._is_in_body or cycle.response_started or self.pipeline:
                self.transport.abort()  # nothing may stand in the midst of another answer
                return
            # The fault is in the body of the request that nobody has answered.
            cycle.disconnected = True
            cycle.message_event.set()
        elif self._is_in_body:
            self.transport.close()  # it has its answer
            return
        answer = plain_error(status, message, code="http_error", headers=SAFE_HEADERS)
        head = [(b"connection", b"close"), *answer.raw_headers]
        lines = [STATUS_LINE[status], *(name + b": " + value + b"\r\n" for name, value in head)]
        self.transport.write(b"".join([*lines, b"\r\n", bytes(answer.body)]))
        # Closing before all is read resets the connection, and the answer may be lost with it.
        self._is_refused = True
        self._unfinished_bytes = 0
        self.flow.resume_reading()
        with contextlib.suppress(OSError):
            self.transport.write_eof()
        self._asking = self.loop.call_later(LINGER_S, self.transport.abort)

    def timeout_keep_alive_handler(self) -> None:
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_expecting()
        if self._asking is not None:
            self._asking.cancel()
        super().connection_lost(exc)

    def _expect_head(self) -> None:
        self._stop_expecting()
        self._head = self.loop.call_later(HEAD_TIMEOUT_S, self.transport.abort)

    def _stop_expecting(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None
