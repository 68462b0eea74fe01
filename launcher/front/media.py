"""The images that one request names: each distinct one is read once, counted and bounded."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence

from kimi_serve.preprocess.media.limits import IMAGES_AT_ONCE_A_REQUEST
from kimi_serve.preprocess.media.sources import MediaSources, Source
from kimi_serve.schemas.errors import (
    BodyTooLargeError,
    DeadlineError,
    MediaTooLargeError,
    OverloadedError,
    RequestError,
    UpstreamError,
)
from kimi_serve.schemas.settings import Settings

from .admission import Admission, Hold

Note = Callable[[Source, str, int, float], None]
"""Told of every image that was read or not: source, outcome, bytes, seconds."""

_OUTCOMES: tuple[tuple[type[RequestError], str], ...] = (
    (MediaTooLargeError, "too_large"),
    (BodyTooLargeError, "too_large"),
    (OverloadedError, "overloaded"),
    (DeadlineError, "timeout"),
    (UpstreamError, "failed"),
)


class Media:
    """Reads for all requests of one front."""

    def __init__(self, settings: Settings, admission: Admission, note: Note) -> None:
        self._sources = MediaSources(settings.media)
        self._admission = admission
        self._note = note
        server = settings.server
        self._max_request_bytes = min(server.max_body_bytes, server.max_queued_bytes)

    def check(self, references: Sequence[str]) -> None:
        """Refuse a request that names an image which nobody would look at; raises RequestError."""
        for index, reference in enumerate(references):
            try:
                self._sources.check(reference)
            except RequestError as error:
                error.param = f"images[{index}]"
                raise

    @contextlib.asynccontextmanager
    async def of_request(self, references: Sequence[str]) -> AsyncGenerator[RequestImages]:
        """Give the images of one request; what is still being read ends with the block."""
        images = RequestImages(self, references)
        try:
            yield images
        finally:
            await images.close()

    def hold(self) -> Hold:
        return Hold(self._admission)

    def source(self, reference: str) -> Source | None:
        return self._sources.check(reference)

    def check_total(self, nbytes: int) -> None:
        """Bound what one request has read for it as its body is bounded."""
        if nbytes > self._max_request_bytes:
            raise BodyTooLargeError(
                f"the images that the request names have more than {self._max_request_bytes} bytes "
                "(server.max_body_bytes, server.max_queued_bytes)"
            )

    async def read(self, source: Source, reference: str, take: Callable[[int], None]) -> bytes:
        """Read one image and note how it went."""
        started, outcome, nbytes = time.monotonic(), "cancelled", 0
        try:
            data = await self._sources.read(reference, take)
            outcome, nbytes = "ok", len(data)
            return data
        except RequestError as error:
            outcome = next((name for kind, name in _OUTCOMES if isinstance(error, kind)), "refused")
            raise
        finally:
            self._note(source, outcome, nbytes, time.monotonic() - started)


class RequestImages:
    """Reads on demand, a few at a time; lets go of a file when its last image is done."""

    def __init__(self, media: Media, references: Sequence[str]) -> None:
        self._media = media
        # Only those that are read: to count a picture in a text is to hash all of it.
        self._uses = Counter(each for each in references if media.source(each) is not None)
        self._reading: dict[str, tuple[asyncio.Task[bytes], Hold]] = {}
        self._places = asyncio.Semaphore(IMAGES_AT_ONCE_A_REQUEST)
        self._total = 0

    @contextlib.asynccontextmanager
    async def content(self, reference: str) -> AsyncGenerator[tuple[bytes, bool]]:
        """Give what a worker gets for a reference, and whether that is the file itself."""
        source = self._media.source(reference)
        if source is None:
            yield reference.encode(), False
            return
        if reference not in self._reading:
            hold = self._media.hold()
            reading = asyncio.ensure_future(self._read(source, reference, hold))
            self._reading[reference] = reading, hold
        try:
            # Others may wait for the same file: one that gives up must not take it from them.
            yield await asyncio.shield(self._reading[reference][0]), True
        finally:
            self._uses[reference] -= 1
            if not self._uses[reference]:
                await self._forget(reference)

    async def close(self) -> None:
        await self._forget(*self._reading)

    async def _read(self, source: Source, reference: str, hold: Hold) -> bytes:
        def take(nbytes: int) -> None:
            self._media.check_total(self._total + nbytes)
            hold.take(nbytes)
            self._total += nbytes

        async with self._places:
            return await self._media.read(source, reference, take)

    async def _forget(self, *references: str) -> None:
        forgotten = [self._reading.pop(each) for each in references if each in self._reading]
        for reading, _ in forgotten:
            reading.cancel()
        try:
            await asyncio.gather(*(reading for reading, _ in forgotten), return_exceptions=True)
        finally:
            # Also when whoever waits here is cancelled once more: nobody would count this back.
            for _, hold in forgotten:
                hold.end()
