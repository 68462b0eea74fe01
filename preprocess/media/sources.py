"""Where images that a request only names may come from, as the settings say."""

from __future__ import annotations

import re
from typing import Literal

from kimi_serve.schemas.errors import MediaError
from kimi_serve.schemas.settings import MediaSettings

from ..images.reference import classify, refusal
from .limits import Take
from .local_files import LocalFiles

Source = Literal["http", "file"]

_FETCHED = re.compile(r"\s*https?:", re.IGNORECASE)


class MediaSources:
    """Listed hosts and listed folders; without any, only what carries its image is taken."""

    def __init__(self, settings: MediaSettings) -> None:
        self._files = None
        if settings.allowed_local_dirs:
            self._files = LocalFiles(settings.allowed_local_dirs, settings.max_bytes)
        self._fetcher = None
        if settings.allowed_domains:
            # Loads the HTTP parser, TLS and the machine's certificates.
            from .fetch import Fetcher

            self._fetcher = Fetcher(settings)

    def check(self, reference: str) -> Source | None:
        """Give where an image is to come from, None when the reference carries it.

        Raises MediaError for what is not even looked at.
        """
        kind = classify(reference)
        if kind == "inline":
            return None
        if kind == "local" and self._files is not None:
            return "file"
        if kind == "remote" and self._fetcher is not None and _FETCHED.match(reference):
            self._fetcher.check(reference)
            return "http"
        raise refusal(kind, reference)

    async def read(self, reference: str, take: Take) -> bytes:
        """Give the file that a reference names, counted by `take`; raises RequestError."""
        source = self.check(reference)
        if source == "file" and self._files is not None:
            return await self._files.read(reference, take)
        if source == "http" and self._fetcher is not None:
            return await self._fetcher.fetch(reference, take)
        raise MediaError("the reference carries its image")
