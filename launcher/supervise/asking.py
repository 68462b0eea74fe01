"""One HTTP request to the engine, on a connection of its own; never through a proxy."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import io
import ssl
from dataclasses import dataclass
from urllib.parse import urlsplit

_MAX_ANSWER = 1 << 20


@dataclass(frozen=True, slots=True)
class Answer:
    """Status and body."""

    status: int
    body: bytes


class _Received:
    """What http.client wants of a socket, on bytes that are here."""

    def __init__(self, data: bytes) -> None:
        self._file = io.BytesIO(data)

    def makefile(self, _mode: str) -> io.BytesIO:
        return self._file


async def ask(url: str, path: str, *, timeout_s: float, key: str | None = None) -> Answer | None:
    """GET `path` of the server at `url`; None where nothing, or no HTTP, comes back in time."""
    parts = urlsplit(url)
    host = parts.hostname or "127.0.0.1"
    context = _unverified() if parts.scheme == "https" else None
    port = parts.port or (443 if context else 80)
    name = f"[{host}]" if ":" in host else host
    head = f"GET {path} HTTP/1.1\r\nHost: {name}:{port}\r\nConnection: close\r\nAccept: */*\r\n"
    if key is not None:
        head += f"Authorization: Bearer {key}\r\n"
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(host, port, ssl=context)
            try:
                writer.write(head.encode() + b"\r\n")
                return parse_answer(await _read(reader))
            finally:
                writer.transport.abort()
    except (OSError, TimeoutError, EOFError):
        return None


async def _read(reader: asyncio.StreamReader) -> bytes:
    data = b""
    with contextlib.suppress(ConnectionError):
        while len(data) < _MAX_ANSWER and (chunk := await reader.read(1 << 16)):
            data += chunk
    return data


def parse_answer(data: bytes) -> Answer | None:
    """Read status and body of a whole answer; None where it is not HTTP."""
    # http.client reads from what makefile gives, and asks for nothing else.
    response = http.client.HTTPResponse(_Received(data))  # type: ignore[arg-type]
    try:
        response.begin()
    except (http.client.HTTPException, ValueError, OSError):
        return None
    try:
        return Answer(response.status, response.read())
    except (http.client.HTTPException, ValueError, OSError):
        return Answer(response.status, b"")


def _unverified() -> ssl.SSLContext:
    """The certificate is the operator's own business: this is our child on this machine."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
