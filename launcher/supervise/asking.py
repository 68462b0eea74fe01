"""One request to the engine, on a connection of its own; never through a proxy.

Where it listens is a URL: http://, https://, unix://PATH for HTTP at a socket file, and tcp:// for
a server that speaks something else.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import http.client
import io
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

from kimi_serve.preprocess.media.dial import SystemResolver
from kimi_serve.schemas.errors import OverloadedError

_MAX_ANSWER = 1 << 20
# Shared, so that lookups that hang are bounded.
_resolve = SystemResolver()
_UNIX = "unix://"
# What a server that wants a certificate says in TLS 1.3, and before.
_WANTS_CERTIFICATE = ("CERTIFICATE_REQUIRED", "ALERT_HANDSHAKE_FAILURE")

_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(frozen=True, slots=True)
class Answer:
    """Status and body."""

    status: int
    body: bytes


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """Why nothing came back, in a clause.

    `is_refused` tells that nobody listens, `wants_certificate` that the server is there and talks
    to clients with a certificate alone.
    """

    reason: str
    is_refused: bool = False
    wants_certificate: bool = False


class _Received:
    """What http.client wants of a socket, on bytes that are here."""

    def __init__(self, data: bytes) -> None:
        self._file = io.BytesIO(data)

    def makefile(self, _mode: str) -> io.BytesIO:
        return self._file


async def ask(
    url: str,
    path: str,
    *,
    timeout_s: float,
    key: str | None = None,
    on_connected: Callable[[], None] = lambda: None,
) -> Answer | NoAnswer:
    """GET `path` of the server at `url`; `on_connected` is called before the answer is there."""
    head = f"GET {path} HTTP/1.1\r\nHost: {_host_of(url)}\r\nConnection: close\r\nAccept: */*\r\n"
    if key is not None:
        head += f"Authorization: Bearer {key}\r\n"
    is_connected = False
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await _connect(url)
            is_connected = True
            on_connected()
            try:
                writer.write(head.encode() + b"\r\n")
                answer = parse_answer(await _read(reader))
            finally:
                writer.transport.abort()
    except TimeoutError:
        does = "accepts connections and answers nothing" if is_connected else "does not answer"
        return NoAnswer(f"{does} within {timeout_s:g} s")
    except (OSError, EOFError) as error:
        return _no_answer(error)
    return answer or NoAnswer("closes the connection without an HTTP answer")


async def is_accepted(url: str, *, timeout_s: float) -> NoAnswer | None:
    """Connect to a tcp:// URL; None where that works."""
    try:
        async with asyncio.timeout(timeout_s):
            _, writer = await _connect(url)
            writer.transport.abort()
    except TimeoutError:
        return NoAnswer(f"does not answer within {timeout_s:g} s")
    except OSError as error:
        return _no_answer(error)
    return None


async def _connect(url: str) -> _Streams:
    if url.startswith(_UNIX):
        return await asyncio.open_unix_connection(url.removeprefix(_UNIX))
    parts = urlsplit(url)
    context = _unverified() if parts.scheme == "https" else None
    port = parts.port or (443 if context else 80)
    host = parts.hostname or "127.0.0.1"
    name = host if context else None
    *others, last = await _addresses(host)
    for address in others:
        with contextlib.suppress(OSError):
            return await asyncio.open_connection(address, port, ssl=context, server_hostname=name)
    return await asyncio.open_connection(last, port, ssl=context, server_hostname=name)


async def _addresses(host: str) -> Sequence[str]:
    """Look a name up in a thread that a stop does not wait for."""
    with contextlib.suppress(ValueError):
        return [str(ip_address(host))]
    try:
        return [str(address) for address in await _resolve(host)]
    except OverloadedError as error:
        raise OSError(errno.EAGAIN, error.message) from None


def _host_of(url: str) -> str:
    return "localhost" if url.startswith(_UNIX) else urlsplit(url).netloc


def _no_answer(error: OSError | EOFError) -> NoAnswer:
    match error:
        case ConnectionRefusedError() | FileNotFoundError():
            is_file = isinstance(error, FileNotFoundError)
            reason = "there is no such file" if is_file else "connection refused"
            return NoAnswer(reason, is_refused=True)
        case ssl.SSLError():
            reason = error.reason or "TLS failed"
            if any(word in reason for word in _WANTS_CERTIFICATE):
                return NoAnswer("wants a certificate of its clients", wants_certificate=True)
            return NoAnswer(f"does not speak TLS with us ({reason})")
        case ConnectionError() | EOFError():
            return NoAnswer("closes the connection without an answer")
        case _:
            return NoAnswer(error.strerror or str(error))


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
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
