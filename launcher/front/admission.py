"""What the front holds in memory for its clients: bodies that wait, answers that are not sent yet.

Both count against one bound, so that greedy clients are refused before memory is.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from kimi_serve.preprocess.workers.leases import ImageLease
from kimi_serve.schemas.errors import BodyTooLargeError, ClientGoneError, OverloadedError

# A refused body is read and dropped up to here: a client that is still sending when the
# connection closes sees a reset and never the answer.
DROPPED_BYTES = 64 * 2**20
DROPPED_S = 5.0
# What one turn of the loop writes, and what is copied for a client that does not keep up.
_PIECE_BYTES = 1 << 20
_COPIED_BYTES = 1 << 17
# Where the protocol leaves the means to write past its buffer for the application.
WRITE_NOW = "kimi_serve.write_now"

Chunk = bytes | bytearray | ImageLease
WriteNow = Callable[[memoryview], int | None]
"""Writes what the connection takes at once and gives its length; None when it is gone."""


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

        It is not kept here: what is made of it is as large.
        A request waits from the end of its body on: clients that send slowly keep nobody out.
        Raises BodyTooLargeError or OverloadedError before the body is read when it announces its
        length, else as soon as it is too much.
        """
        with Hold(self) as hold:
            read = [await self._read(request, hold)]
            self._check_waiting()
            self.num_waiting += 1
            try:
                yield read.pop()
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
                    raise ClientGoneError("the client closed the connection before the body ended")
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
        self._leases: list[ImageLease] = []
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

    def keep(self, lease: ImageLease) -> None:
        """Release the lease at the end, however it comes."""
        self._leases.append(lease)

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
        for lease in self._leases:
            lease.release()
        self._leases.clear()


class HeldResponse(Response):
    """Sends its chunks in pieces and lets go of what is sent.

    What lies in a worker's slot goes from there into the socket: no sendfile, which would still
    read the slot when it is the next image's. A client that does not keep up gets copies of small
    pieces, so that nothing of a slot is ever in a buffer that waits for it.
    """

    def __init__(self, chunks: Sequence[Chunk], media_type: str, hold: Hold) -> None:
        self._chunks = list(chunks)
        self._hold = hold
        super().__init__(media_type=media_type, headers={"Content-Length": str(hold.size)})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        head = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        write_now = cast("WriteNow", scope.get(WRITE_NOW, _write_nothing))
        try:
            await send(head)
            while self._chunks:
                if not await self._send_chunk(self._chunks.pop(0), send, write_now):
                    return
            await send({"type": "http.response.body", "body": b""})
        finally:
            self._chunks.clear()
            self._hold.end()

    async def _send_chunk(self, chunk: Chunk, send: Send, write_now: WriteNow) -> bool:
        """Send all of it; False when the connection is gone."""
        start = 0
        while start < len(chunk):
            # Taken anew after every wait: what is leased may have moved.
            view = chunk.pixels if isinstance(chunk, ImageLease) else memoryview(chunk)
            taken = write_now(view[start : start + _PIECE_BYTES])
            if taken is None:
                return False
            if taken:
                await asyncio.sleep(0)
            else:
                copied = bytes(view[start : start + _COPIED_BYTES])
                taken = len(copied)
                await send({"type": "http.response.body", "body": copied, "more_body": True})
                if start + taken < len(chunk):  # wait until it is on its way
                    await send({"type": "http.response.body", "body": b"", "more_body": True})
            start += taken
        self._hold.give_back(len(chunk))
        if isinstance(chunk, ImageLease):
            chunk.release()
        return True


def _write_nothing(_: memoryview) -> int:
    return 0


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
