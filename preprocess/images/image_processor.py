"""One image from encoded bytes to patches, under one set of rules."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from time import perf_counter
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from kimi_serve.schemas.errors import MediaTooLargeError
from kimi_serve.schemas.image_facts import ImageFacts
from kimi_serve.schemas.patch_bound import patch_bytes
from kimi_serve.schemas.vocabulary import GpuFallback, ImageKernel
from kimi_serve.schemas.worker import ImageRules, ResizeConfig

from ..native.choice import choose_kernel
from .decode import DecodedImage, PixelPool, decode_image
from .kimi import ResizePlan, plan_resize
from .normalise import NUMPY_DTYPES, Buffer

# Part of every hash: raise it when the same bytes and settings start to give other pixels.
_PIXELS_VERSION = "kimi-serve pixels 2"


class Decoded(Protocol):
    """What is said of an image once it is decoded, wherever its pixels are."""

    @property
    def size(self) -> tuple[int, int]: ...
    @property
    def format(self) -> str: ...
    @property
    def orientation_applied(self) -> bool: ...


class ImageProcessor:
    """Decodes, resizes and normalises images; one per worker, not shared by threads."""

    # Why the last image was redone here, in a worker that has a device.
    fallback: GpuFallback | None = None

    def __init__(
        self, resize: ResizeConfig, rules: ImageRules, kernel: ImageKernel = "auto"
    ) -> None:
        self.resize = resize
        self.rules = rules
        self.kernel = choose_kernel(kernel, resize)
        self._writer = self.kernel.writer(resize, rules.dtype)
        self._pool = PixelPool()
        settings = {
            "version": _PIXELS_VERSION,
            "policy": rules.policy,
            "background": rules.background,
            "dtype": rules.dtype,
            "resize": asdict(resize),
        }
        self._hash_prefix = json.dumps(settings, sort_keys=True).encode() + b"\0"

    def process(self, data: bytes, out: Buffer) -> ImageFacts:
        """Write the patches of one image to the start of `out`."""
        started = perf_counter()
        decoded, plan = self._decode(data)
        decoded_at = perf_counter()
        needed = self._output_bytes(plan)
        available = out.nbytes
        if needed > available:
            message = f"the image needs {needed} bytes of output; the buffer has {available}"
            raise MediaTooLargeError(message)
        self._writer.write(decoded.picture, plan, out)
        return self._processed(data, decoded, plan, started, decoded_at)

    def process_array(self, data: bytes) -> tuple[ImageFacts, NDArray[Any]]:
        """Process into an array of its own, [num_patches, 3, patch, patch]; bfloat16 as uint16."""
        started = perf_counter()
        decoded, plan = self._decode(data)
        decoded_at = perf_counter()
        out = np.empty(self._shape(plan), NUMPY_DTYPES[self.rules.dtype])
        self._writer.write(decoded.picture, plan, out)
        return self._processed(data, decoded, plan, started, decoded_at), out

    def release_memory(self) -> None:
        """Give back what is kept for the next image; an image in work keeps its own."""
        self._pool.release()

    def _decode(self, data: bytes) -> tuple[DecodedImage, ResizePlan]:
        decoded = decode_image(data, self.rules, self._pool, self.kernel.unfilter)
        return decoded, plan_resize(*decoded.size, self.resize)

    def _shape(self, plan: ResizePlan) -> tuple[int, int, int, int]:
        return plan.num_patches, 3, self.resize.patch_size, self.resize.patch_size

    def _output_bytes(self, plan: ResizePlan) -> int:
        return plan.num_patches * patch_bytes(self.resize, self.rules.dtype)

    def _processed(
        self,
        data: bytes,
        decoded: Decoded,
        plan: ResizePlan,
        started: float,
        decoded_at: float,
    ) -> ImageFacts:
        written_at = perf_counter()
        width, height = decoded.size
        digest = hashlib.sha256(self._hash_prefix)
        digest.update(data)
        return ImageFacts(
            width=width,
            height=height,
            format=decoded.format,
            orientation_applied=decoded.orientation_applied,
            resized=(plan.new_width, plan.new_height),
            grid_thw=plan.grid_thw,
            num_tokens=plan.num_tokens,
            shape=self._shape(plan),
            nbytes=self._output_bytes(plan),
            sha256=digest.hexdigest(),
            decode_ms=1000 * (decoded_at - started),
            preprocess_ms=1000 * (written_at - decoded_at),
        )
