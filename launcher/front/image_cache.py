"""Processed images kept for clients that send the same content again; off unless it has a size.

It lives in the front and not in the workers: one bound instead of one a worker, every worker's
work is found by every client, a worker's death loses nothing, and a hit costs no job. It keeps a
digest of what a client sent, never the bytes, and an entry only once it is whole.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import struct
from collections import OrderedDict
from dataclasses import asdict, dataclass
from typing import Any

from kimi_serve.schemas.image_facts import ImageFacts
from kimi_serve.schemas.messages import PixelEncoding
from kimi_serve.schemas.worker import WorkerSpec

# Key, facts, two objects and their place in the table: 1.1 KiB measured, counted with every entry.
ENTRY_OVERHEAD_BYTES = 2048
# Hashing lets go of the interpreter lock; below this a thread costs more than it frees.
_HASHED_INLINE_BYTES = 1 << 18
_LENGTH = struct.Struct("<Q")
# What of a worker's spec says nothing of the pixels that it makes.
_WITHOUT_EFFECT = (
    *("index", "tokenizer", "slots", "slot_bytes", "memory_bytes", "gpu_budget_bytes"),
    *("log_level", "log_format"),
)


@dataclass(frozen=True, slots=True)
class CachedImage:
    """What a worker answered; `pixels` are shared with the answers that send them, so read only."""

    facts: ImageFacts
    pixels: bytearray


class ImageCache:
    """The images last used, within a bound of memory, through every reload; for one event loop."""

    def __init__(self) -> None:
        self._max_bytes = 0
        self._entries: OrderedDict[bytes, CachedImage] = OrderedDict()
        self.held_bytes = 0
        self.hits = 0
        self.misses = 0
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._entries)

    def limit(self, max_bytes: int) -> None:
        """Keep no more than this from now on."""
        self._max_bytes = max_bytes
        self._make_room(0)

    def get(self, key: bytes) -> CachedImage | None:
        """Give what is kept, and count a hit or a miss."""
        found = self._entries.get(key)
        if found is None:
            self.misses += 1
            return None
        self._entries.move_to_end(key)
        self.hits += 1
        return found

    def put(self, key: bytes, image: CachedImage) -> None:
        """Keep an image, in place of those not used for longest; one that never fits is not."""
        size = _size(image)
        if key in self._entries or not self.fits(len(image.pixels)):
            return
        self._make_room(size)
        self._entries[key] = image
        self.held_bytes += size

    def fits(self, nbytes: int) -> bool:
        """Say whether an image of so many bytes of pixels would be kept."""
        return nbytes + ENTRY_OVERHEAD_BYTES <= self._max_bytes

    def _make_room(self, size: int) -> None:
        while self.held_bytes + size > self._max_bytes:
            _, oldest = self._entries.popitem(last=False)
            self.held_bytes -= _size(oldest)
            self.evictions += 1


class PlanImages:
    """The images of the cache that the workers of one plan made, or would make alike."""

    def __init__(self, cache: ImageCache, spec: WorkerSpec) -> None:
        self.cache = cache
        self._settings = _settings(spec)

    async def key(self, content: bytes, encoding: PixelEncoding, *, is_file: bool = False) -> bytes:
        """Give the whole sha256 of the whole content, the settings and the form of the pixels.

        A reference and a file may be the same bytes and mean different images.
        """
        if len(content) < _HASHED_INLINE_BYTES:
            return self._digest(content, encoding, is_file)
        return await asyncio.to_thread(self._digest, content, encoding, is_file)

    def _digest(self, content: bytes, encoding: PixelEncoding, is_file: bool) -> bytes:
        digest = hashlib.sha256(self._settings)
        digest.update(encoding.encode() + (b"\1" if is_file else b"\0"))
        digest.update(content)
        return digest.digest()


def _settings(spec: WorkerSpec) -> bytes:
    """Write all that a worker is told, but what is known to have no effect: none is forgotten."""
    told: dict[str, Any] = asdict(spec)
    settings = {name: value for name, value in told.items() if name not in _WITHOUT_EFFECT}
    text = json.dumps(settings, sort_keys=True).encode()
    return _LENGTH.pack(len(text)) + text


def _size(image: CachedImage) -> int:
    return len(image.pixels) + ENTRY_OVERHEAD_BYTES
