"""Which request bodies are read at all: the size of one, and the bytes of all that wait."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator

from starlette.requests import ClientDisconnect, Request

from kimi_serve.schemas.errors import BodyTooLargeError, OverloadedError, RequestError


class Admission:
    """Counts the bytes of all bodies that are not answered yet and bounds them."""

    def __init__(self, max_body_bytes: int, max_queued_bytes: int) -> None:
        self._max_body_bytes = max_body_bytes
        self._max_queued_bytes = max_queued_bytes
        self.queued_bytes = 0

    @contextlib.asynccontextmanager
    async def body(self, request: Request) -> AsyncGenerator[bytes]:
        """Read the body; its bytes count until the block ends.

        Raises BodyTooLargeError before the body is read when it announces its length,
        OverloadedError when the sum of all bodies would pass its bound.
        """
        self._check(_announced_length(request), self.queued_bytes)
        reserved = 0
        chunks: list[bytes] = []
        try:
            async for chunk in request.stream():
                reserved += len(chunk)
                self.queued_bytes += len(chunk)
                self._check(reserved, self.queued_bytes - reserved)
                chunks.append(chunk)
            yield b"".join(chunks)
        except ClientDisconnect:
            raise RequestError("the client closed the connection before the body ended") from None
        finally:
            self.queued_bytes -= reserved

    def _check(self, size: int, others: int) -> None:
        if size > self._max_body_bytes:
            raise BodyTooLargeError(
                f"the body has more than {self._max_body_bytes} bytes (server.max_body_bytes)"
            )
        if others + size > self._max_queued_bytes:
            raise OverloadedError(
                f"more than {self._max_queued_bytes} bytes wait for an answer "
                "(server.max_queued_bytes); try again in a moment"
            )


def _announced_length(request: Request) -> int:
    length = request.headers.get("content-length", "0")
    return int(length) if length.isascii() and length.isdigit() else 0
