"""What the images that one of SGLang's tokenizer workers holds take of a GPU.

The built-in workers' own path has its arithmetic beside it, in preprocess/cuda/memory.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from kimi_serve.schemas.patch_bound import max_patches, patch_bytes
from kimi_serve.schemas.worker import ResizeConfig

MIB = 2**20
# Decoded as uint8, and once more as float32 for the resize, which needs both at a time.
BYTES_A_PIXEL = 3 + 12
# Resized and padded, cut into patches, and copied beside the other images of the request.
COPIES_OF_PATCHES = 3


@dataclass(frozen=True, slots=True)
class ImageWork:
    """What one worker works on at a time: `jobs` requests of `images` images each."""

    max_pixels: int
    resize: ResizeConfig | None
    jobs: int = 1
    images: int = 1


def patches_mib(resize: ResizeConfig) -> Fraction:
    """Give the size of the largest image's pixel_values as float32."""
    return Fraction(max_patches(resize) * patch_bytes(resize, "float32"), MIB)


def largest_image_mib(max_pixels: int, resize: ResizeConfig | None) -> int:
    """Give what the largest image takes while it is prepared; whole MiB, rounded up."""
    patches = patches_mib(resize) * COPIES_OF_PATCHES if resize is not None else Fraction(0)
    return -(-(Fraction(max_pixels * BYTES_A_PIXEL, MIB) + patches) // 1)


def work_mib(work: ImageWork) -> int:
    """Give what one worker's images take at most; allocators keep what they once had."""
    return work.jobs * work.images * largest_image_mib(work.max_pixels, work.resize)


def work_formula(work: ImageWork) -> str:
    """Write the arithmetic of one worker's images."""
    patches = "patches not counted: the checkpoint's limits are not known"
    if work.resize is not None:
        number, size = max_patches(work.resize), patch_bytes(work.resize, "float32")
        patches = f"{COPIES_OF_PATCHES} x {number} patches x {size} bytes"
    each = f"image.max_pixels {work.max_pixels} x {BYTES_A_PIXEL} bytes + {patches}"
    many = [f"{work.jobs} threads" if work.jobs > 1 else ""]
    many.append(f"{work.images} images a request" if work.images > 1 else "one image at a time")
    return f"{each}; {', '.join(filter(None, many))}"
