"""How much memory the work of one built-in worker may take: asked for, or what images need."""

from __future__ import annotations

from kimi_serve.schemas.provenance import Resolved

from .situation import Situation

MIB = 2**20
SETTING = "tokenizer.worker_memory_mib"

# Measured as the least RLIMIT_DATA that 25 megapixels of each format and mode get by with: up to 23
# bytes a pixel (WebP with transparency). The rest is for a heap with holes.
_BYTES_A_PIXEL = 40
# The frame, its text, the decoded bytes, and what a decoder copies of them.
_COPIES_OF_A_FILE = 4
_TEXTS_MIB = 128


def worker_memory(situation: Situation, slot_bytes: int) -> Resolved[int]:
    """Decide the cap in MiB, with the arithmetic."""
    settings = situation.settings
    pixels, file = settings.image.max_pixels, settings.media.max_bytes
    # Patches are made in their slot, which is shared memory; a resized picture is never larger.
    needed = (pixels * _BYTES_A_PIXEL + file * _COPIES_OF_A_FILE + slot_bytes) // MIB + _TEXTS_MIB
    arithmetic = (
        f"image.max_pixels {pixels} x {_BYTES_A_PIXEL} bytes, media.max_bytes {file} x "
        f"{_COPIES_OF_A_FILE}, a resized picture of {slot_bytes} and {_TEXTS_MIB} MiB for texts "
        f"make {needed} MiB"
    )
    source = str(situation.origin(SETTING))
    given = settings.tokenizer.worker_memory_mib
    if given is None:
        return Resolved(needed, source, f"MiB for the work of one worker: {arithmetic}")
    if given >= needed:
        return Resolved(given, source, f"MiB for the work of one worker; {arithmetic}")
    reason = f"MiB for the work of one worker; larger images are refused with 413: {arithmetic}"
    return Resolved(given, source, reason)
