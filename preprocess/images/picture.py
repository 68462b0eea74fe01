"""RGB pixels as the decoders leave them: an array, or a Pillow image that need not be copied."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from .kimi import ResizePlan, resize_pixels
from .normalise import Buffer, Normaliser

Picture = NDArray[np.uint8] | Image.Image
"""[height, width, 3], or a loaded image of mode RGB."""


class PatchWriter(Protocol):
    """Resizes, pads, normalises and patchifies one picture into a caller's buffer."""

    def write(self, picture: Picture, plan: ResizePlan, out: Buffer) -> None: ...


class PureWriter:
    """The specification: Pillow resizes, numpy does the rest."""

    def __init__(self, normaliser: Normaliser) -> None:
        self._normaliser = normaliser

    def write(self, picture: Picture, plan: ResizePlan, out: Buffer) -> None:
        self._normaliser.write(resize_pixels(np.asarray(picture), plan), plan, out)
