"""As much of HTTP as the load needs: what came back, or that nothing did."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

ANSWER_TIMEOUT_S = 180.0


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


class LostError(Exception):
    """The connection ended, or time did, before the answer was whole."""


class Connection:
    """One client's connection, opened again when the server closed it."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, path: str, body: bytes, accept: str = "*/*") -> Answer:
        """Send a request and wait for all of its answer."""
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                return await self._post(path, body, accept)
        except (OSError, EOFError, TimeoutError, ValueError) as error:
            self.close()
            raise LostError(f"{type(error).__name__}: {error}") from error
        except asyncio.CancelledError:
            self.close()
            raise

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None

    async def _post(self, path: str, body: bytes, accept: str) -> Answer:
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port, limit=1 << 20)
        reader, writer = self._streams
        head = (
            f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            f"Accept: {accept}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        await writer.drain()
        lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        status = int(lines[0].split()[1])
        pairs = (line.partition(":") for line in lines[1:] if line)
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        content = await reader.readexactly(int(headers.get("content-length", "0")))
        if headers.get("connection", "").lower() == "close":
            self.close()
        return Answer(status, headers, content)
