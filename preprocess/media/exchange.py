"""One GET over an open connection, by h11: read strictly and never past its limits."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from urllib.parse import quote

import h11

from kimi_serve.schemas.errors import MediaError, MediaTooLargeError, UpstreamError

from .limits import Take
from .targets import ASCII, Target

_HEAD_BYTES = 64 * 1024
_READ_BYTES = 64 * 1024
_MOST_INTERIM_ANSWERS = 8
_REDIRECTS = (301, 302, 303, 307, 308)
# The host is at fault and may recover; other answers are about the URL that was sent.
_PASSING = (408, 425, 429)


@dataclass(frozen=True, slots=True)
class Redirect:
    location: str


class Exchange:
    """Asks `target` for its file on a connection of its own."""

    def __init__(
        self, target: Target, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._target = target
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEAD_BYTES)
        self._has_ended = False

    async def get(self, max_bytes: int, take: Take) -> bytes | Redirect:
        """Give the whole body, which `take` counted, or where else to ask; raises RequestError."""
        host = self._target.host
        try:
            await self._send()
            response = await self._head()
        except (h11.RemoteProtocolError, OSError):
            raise _no_http(host) from None
        location = self._judge(response, max_bytes)
        if location is not None:
            return Redirect(location)
        try:
            return await self._body(max_bytes, take)
        except (h11.RemoteProtocolError, OSError) as error:
            if isinstance(error, h11.RemoteProtocolError) and not self._has_ended:
                raise _no_http(host) from None
            raise MediaError(f"the image from {host} is incomplete: it ended early") from None

    async def _send(self) -> None:
        # The same for every host: no cookies, no keys, nothing of the client's.
        headers = [
            ("Host", self._target.authority),
            ("User-Agent", "kimi-serve"),
            ("Accept", "image/*"),
            ("Accept-Encoding", "identity"),
            ("Connection", "close"),
        ]
        request = h11.Request(method="GET", target=self._target.path, headers=headers)
        self._writer.write(self._http.send(request) or b"")
        self._writer.write(self._http.send(h11.EndOfMessage()) or b"")
        await self._writer.drain()

    async def _head(self) -> h11.Response:
        for _ in range(_MOST_INTERIM_ANSWERS):
            event = await self._next()
            if isinstance(event, h11.Response):
                return event
            if not isinstance(event, h11.InformationalResponse):
                break
        raise h11.RemoteProtocolError("no final answer")

    def _judge(self, response: h11.Response, max_bytes: int) -> str | None:
        """Give where a redirect leads, None for an acceptable head; raises RequestError."""
        host, status = self._target.host, response.status_code
        headers = {bytes(name): bytes(value) for name, value in response.headers}
        if status in _REDIRECTS and b"location" in headers:
            # Many hosts write UTF-8 there as it is; what is escaped already stays so.
            return quote(headers[b"location"], safe=ASCII)
        if status != 200:
            kind = UpstreamError if status >= 500 or status in _PASSING else MediaError
            raise kind(f"{host} answered with status {status}")
        encoding = headers.get(b"content-encoding", b"identity").strip().lower()
        if encoding not in (b"", b"identity"):
            raise MediaError(f"{host} sent the image compressed, which it was asked not to do")
        if int(headers.get(b"content-length", b"0")) > max_bytes:
            raise _too_large(host, max_bytes)
        return None

    async def _body(self, max_bytes: int, take: Take) -> bytes:
        pieces: list[bytes] = []
        size = 0
        while isinstance(event := await self._next(), h11.Data):
            size += len(event.data)
            if size > max_bytes:
                raise _too_large(self._target.host, max_bytes)
            take(len(event.data))
            pieces.append(bytes(event.data))
        return b"".join(pieces)

    async def _next(self) -> object:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            data = await self._reader.read(_READ_BYTES)
            self._has_ended = not data
            self._http.receive_data(data)
        return event


def _no_http(host: str) -> UpstreamError:
    return UpstreamError(f"{host} gave no answer in HTTP")


def _too_large(host: str, max_bytes: int) -> MediaTooLargeError:
    return MediaTooLargeError(
        f"the image from {host} has more than {max_bytes} bytes (media.max_bytes)"
    )
