"""What the front holds in memory for its clients: bodies that wait, answers that are not sent yet.

Both count against one bound, so that greedy clients are refused before memory is.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from kimi_serve.schemas.errors import BodyTooLargeError, OverloadedError, RequestError

# A refused body is read and dropped up to here: a client that is still sending when the
# connection closes sees a reset and never the answer.
DROPPED_BYTES = 64 * 2**20
DROPPED_S = 5.0
_PIECE_BYTES = 1 << 18

Chunk = bytes | bytearray | memoryview


class Admission:
    """Counts the bytes held for all clients, and the requests that wait, and bounds both."""

    def __init__(self, max_body_bytes: int, max_held_bytes: int, max_requests: int = 2**20) -> None:
        self.held_bytes = 0
        self.num_waiting = 0
        self.limit(max_body_bytes, max_held_bytes, max_requests)

    def limit(self, max_body_bytes: int, max_held_bytes: int, max_requests: int) -> None:
        """Set the bounds; what is held already stays."""
        self._max_body_bytes = min(max_body_bytes, max_held_bytes)
        self._max_held_bytes = max_held_bytes
        self._max_requests = max_requests

    @contextlib.asynccontextmanager
    async def body(self, request: Request) -> AsyncGenerator[bytes]:
        """Read the body; its bytes, and the request as one that waits, count until the block ends.

        A request waits from the end of its body on: clients that send slowly keep nobody out.
        Raises BodyTooLargeError or OverloadedError before the body is read when it announces its
        length, else as soon as it is too much.
        """
        with Hold(self) as hold:
            body = await self._read(request, hold)
            self._check_waiting()
            self.num_waiting += 1
            try:
                yield body
            finally:
                self.num_waiting -= 1

    async def _read(self, request: Request, hold: Hold) -> bytes:
        chunks: list[bytes] = []
        is_more = True
        try:
            self._check_waiting()
            self._check_body(_announced_length(request))
            while is_more:
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    raise RequestError("the client closed the connection before the body ended")
                is_more = message.get("more_body", False)
                chunk = message.get("body", b"")
                self._check_body(hold.size + len(chunk))
                hold.take(len(chunk))
                chunks.append(chunk)
        except (BodyTooLargeError, OverloadedError):
            chunks.clear()
            if is_more and "expect" not in request.headers:
                await _drop(request)
            raise
        return b"".join(chunks)

    def check_held(self, more: int) -> None:
        """Raise OverloadedError when `more` bytes would pass the bound."""
        if self.held_bytes + more > self._max_held_bytes:
            raise OverloadedError(
                f"more than {self._max_held_bytes} bytes of requests and answers are held "
                "(server.max_queued_bytes); try again in a moment"
            )

    def _check_waiting(self) -> None:
        if self.num_waiting >= self._max_requests:
            raise OverloadedError(
                f"{self._max_requests} requests wait already (server.max_queued_requests); "
                "try again in a moment"
            )

    def _check_body(self, size: int) -> None:
        if size > self._max_body_bytes:
            raise BodyTooLargeError(
                f"the body has more than {self._max_body_bytes} bytes "
                "(server.max_body_bytes, server.max_queued_bytes)"
            )
        self.check_held(0)


class Hold:
    """One client's share of the held bytes; ends with its block unless an answer took it over."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._is_handed_over = False
        self.size = 0

    def __enter__(self) -> Hold:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._is_handed_over:
            self.end()

    def response(self, chunks: Sequence[Chunk], media_type: str) -> HeldResponse:
        """Give the response of `chunks`, whose bytes count until they are sent."""
        self.take(sum(len(chunk) for chunk in chunks) - self.size)
        self._is_handed_over = True
        return HeldResponse(chunks, media_type, self)

    def take(self, size: int) -> None:
        """Count `size` more bytes; raises OverloadedError, and counts nothing, past the bound."""
        self._admission.check_held(size)
        self._admission.held_bytes += size
        self.size += size

    def give_back(self, size: int) -> None:
        self._admission.held_bytes -= size
        self.size -= size

    def end(self) -> None:
        self.give_back(self.size)


class HeldResponse(Response):
    """Sends its chunks in pieces and lets go of what is sent."""

    def __init__(self, chunks: Sequence[Chunk], media_type: str, hold: Hold) -> None:
        self._chunks = list(chunks)
        self._hold = hold
        super().__init__(media_type=media_type, headers={"Content-Length": str(hold.size)})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        head = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        try:
            await send(head)
            while self._chunks:
                await self._send_chunk(memoryview(self._chunks.pop(0)), send)
            await send({"type": "http.response.body", "body": b""})
        finally:
            self._chunks.clear()
            self._hold.end()

    async def _send_chunk(self, chunk: memoryview, send: Send) -> None:
        for start in range(0, len(chunk), _PIECE_BYTES):
            piece = chunk[start : start + _PIECE_BYTES]
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        self._hold.give_back(len(chunk))


async def _drop(request: Request) -> None:
    """Read and forget what the client still sends, within bounds."""
    dropped = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DROPPED_S):
            while dropped < DROPPED_BYTES:
                message = await request.receive()
                dropped += len(message.get("body", b""))
                if message["type"] == "http.disconnect" or not message.get("more_body"):
                    return


def _announced_length(request: Request) -> int:
    length = request.headers.get("content-length", "0")
    return int(length) if length.isascii() and length.isdigit() else 0
