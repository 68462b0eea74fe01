"""Images by URL: hop by hop, every hop checked, under one deadline.

Proxies of the environment play no part: behind one, the address that is dialled would not be the
address that was checked.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncGenerator

from kimi_serve.schemas.errors import DeadlineError, MediaError
from kimi_serve.schemas.settings import MediaSettings

from .dial import Connect, Dialer, Resolver, SystemConnect, SystemResolver
from .exchange import Exchange, Redirect
from .limits import FETCHES_AT_ONCE, FETCHES_AT_ONCE_A_HOST, Take
from .policy import UrlPolicy
from .targets import Target


class Fetcher:
    """Fetches from listed hosts; nothing is asked for twice."""

    def __init__(
        self,
        settings: MediaSettings,
        resolve: Resolver | None = None,
        connect: Connect | None = None,
    ) -> None:
        self._settings = settings
        self._policy = UrlPolicy(settings.allowed_domains)
        self._dialer = Dialer(resolve or SystemResolver(), connect or SystemConnect())
        self._places = _Places()

    def check(self, url: str) -> None:
        """Refuse what would not be asked at all; raises MediaError."""
        self._policy.read(url)

    async def fetch(self, url: str, take: Take) -> bytes:
        """Give the file behind `url`, whose bytes `take` counts; raises RequestError."""
        target = self._policy.read(url)
        timeout_s = self._settings.timeout_s
        async with self._places.one(target.host):
            try:
                async with asyncio.timeout(timeout_s) as limit:
                    return await self._walk(target, take, limit.when() or 0.0)
            except TimeoutError:
                message = f"{target.host} did not deliver the image within {timeout_s:g} s"
                raise DeadlineError(f"{message} (media.timeout_s)") from None

    async def _walk(self, target: Target, take: Take, deadline: float) -> bytes:
        first = target.host
        for _ in range(self._settings.max_redirects + 1):
            answer = await self._ask(target, take, deadline)
            if isinstance(answer, bytes):
                return answer
            target = self._policy.follow(target, answer.location)
        number = self._settings.max_redirects
        raise MediaError(f"{first} redirects more than {number} times (media.max_redirects)")

    async def _ask(self, target: Target, take: Take, deadline: float) -> bytes | Redirect:
        reader, writer = await self._dialer.open(target, self._policy.check_addresses, deadline)
        try:
            return await Exchange(target, reader, writer).get(self._settings.max_bytes, take)
        finally:
            # A close would wait for a peer that does not listen.
            writer.transport.abort()


class _Places:
    """Bounds what runs at a time; who waits holds no place that somebody else could use."""

    def __init__(self) -> None:
        self._all = asyncio.Semaphore(FETCHES_AT_ONCE)
        self._hosts = defaultdict[str, asyncio.Semaphore](
            lambda: asyncio.Semaphore(FETCHES_AT_ONCE_A_HOST)
        )
        self._users = defaultdict[str, int](int)

    @contextlib.asynccontextmanager
    async def one(self, host: str) -> AsyncGenerator[None]:
        self._users[host] += 1
        try:
            async with self._hosts[host], self._all:
                yield
        finally:
            self._users[host] -= 1
            if not self._users[host]:
                del self._users[host], self._hosts[host]
