"""The images that one request names: each distinct one is read once, counted and bounded."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class NamedImage:
    """An image that a request only names, and where it is read."""

    source: Source
    reference: str


AskedImage = bytes | NamedImage
"""Bytes are a reference that carries its image, as UTF-8."""

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

    def sort(self, references: Sequence[str]) -> tuple[AskedImage, ...]:
        """Tell the images that a request carries from those that it names.

        Raises RequestError when nobody would look at one, whose index is in its `param`.
        """
        images: list[AskedImage] = []
        for index, reference in enumerate(references):
            try:
                source = self._sources.check(reference)
            except RequestError as error:
                error.param = f"images[{index}]"
                raise
            images.append(NamedImage(source, reference) if source else reference.encode())
        return tuple(images)

    @contextlib.asynccontextmanager
    async def of_request(self, images: Sequence[AskedImage]) -> AsyncGenerator[RequestImages]:
        """Read the images of one request; what is still being read ends with the block."""
        reading = RequestImages(self, images)
        try:
            yield reading
        finally:
            await reading.close()

    def hold(self) -> Hold:
        return Hold(self._admission)

    def check_total(self, nbytes: int) -> None:
        """Bound what one request has read for it as its body is bounded."""
        if nbytes > self._max_request_bytes:
            raise BodyTooLargeError(
                f"the images that the request names have more than {self._max_request_bytes} bytes "
                "(server.max_body_bytes, server.max_queued_bytes)"
            )

    async def read(self, image: NamedImage, take: Callable[[int], None]) -> bytes:
        """Read one image and note how it went."""
        started, outcome, nbytes = time.monotonic(), "cancelled", 0
        try:
            data = await self._sources.read(image.reference, take)
            outcome, nbytes = "ok", len(data)
            return data
        except RequestError as error:
            outcome = next((name for kind, name in _OUTCOMES if isinstance(error, kind)), "refused")
            raise
        finally:
            self._note(image.source, outcome, nbytes, time.monotonic() - started)


class RequestImages:
    """Reads on demand, a few at a time; lets go of a file when its last image is done."""

    def __init__(self, media: Media, images: Sequence[AskedImage]) -> None:
        self._media = media
        # Only those that are read: to count a picture in a text is to hash all of it.
        self._uses = Counter(each for each in images if isinstance(each, NamedImage))
        self._reading: dict[NamedImage, tuple[asyncio.Task[bytes], Hold]] = {}
        self._places = asyncio.Semaphore(IMAGES_AT_ONCE_A_REQUEST)
        self._total = 0

    @contextlib.asynccontextmanager
    async def content(self, image: AskedImage) -> AsyncGenerator[tuple[bytes, bool]]:
        """Give what a worker gets for an image, and whether that is the file itself."""
        if isinstance(image, bytes):
            yield image, False
            return
        if image not in self._reading:
            hold = self._media.hold()
            self._reading[image] = asyncio.ensure_future(self._read(image, hold)), hold
        try:
            # Others may wait for the same file: one that gives up must not take it from them.
            yield await asyncio.shield(self._reading[image][0]), True
        finally:
            self._uses[image] -= 1
            if not self._uses[image]:
                await self._forget(image)

    async def close(self) -> None:
        await self._forget(*self._reading)

    async def _read(self, image: NamedImage, hold: Hold) -> bytes:
        def take(nbytes: int) -> None:
            self._media.check_total(self._total + nbytes)
            hold.take(nbytes)
            self._total += nbytes

        async with self._places:
            return await self._media.read(image, take)

    async def _forget(self, *images: NamedImage) -> None:
        forgotten = [self._reading.pop(each) for each in images if each in self._reading]
        for reading, _ in forgotten:
            reading.cancel()
        try:
            await asyncio.gather(*(reading for reading, _ in forgotten), return_exceptions=True)
        finally:
            # Also when whoever waits here is cancelled once more: nobody would count this back.
            for _, hold in forgotten:
                hold.end()
