"""What became of one image: said by the worker, shown to the client."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """Everything about a processed image but its pixels.

    `width` and `height` are those of the upright picture, `resized` is (width, height) before
    padding; `shape` is that of the patches, [num_patches, 3, patch, patch], and `nbytes` their
    size. `sha256` covers the encoded bytes and every setting that changes pixels. Stage times in
    milliseconds.
    """

    width: int
    height: int
    format: str
    orientation_applied: bool
    resized: tuple[int, int]
    grid_thw: tuple[int, int, int]
    num_tokens: int
    shape: tuple[int, int, int, int]
    nbytes: int
    sha256: str
    decode_ms: float
    preprocess_ms: float
