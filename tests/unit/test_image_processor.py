"""One image from bytes to patches: the numbers that are reported and the hash."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from image_samples import DATA, DISPLAY, KIMI, encoded, picture

from kimi_serve.preprocess.images import image_processor
from kimi_serve.preprocess.images.image_processor import ImageProcessor
from kimi_serve.schemas.errors import MediaTooLargeError
from kimi_serve.schemas.patch_bound import max_patches, patch_bytes

PNG = encoded(picture(), "PNG")


def test_reported_numbers() -> None:
    exif = picture().getexif()
    exif[0x0112] = 6
    image, patches = ImageProcessor(KIMI, DISPLAY).process_array(
        encoded(picture(), "PNG", exif=exif)
    )
    assert (image.width, image.height, image.format) == (30, 40, "png")
    assert image.orientation_applied is True
    assert (image.resized, image.grid_thw, image.num_tokens) == ((30, 40), (1, 4, 4), 4)
    assert image.shape == patches.shape == (16, 3, 14, 14)
    assert image.nbytes == patches.nbytes == 16 * 3 * 14 * 14 * 4
    assert image.decode_ms > 0
    assert image.preprocess_ms > 0


def test_the_hash_is_no_part_of_a_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that stands still but while something is hashed."""
    now = [5.0]
    sha256 = hashlib.sha256

    def hashed(data: bytes) -> Any:
        now[0] += 100.0
        return sha256(data)

    monkeypatch.setattr(image_processor, "perf_counter", lambda: now[0])
    monkeypatch.setattr(image_processor.hashlib, "sha256", hashed)
    processor = ImageProcessor(KIMI, DISPLAY)
    facts = [processor.process_array(PNG)[0]]
    facts.append(processor.process(PNG, memoryview(bytearray(facts[0].nbytes))))
    assert now[0] == 205.0
    assert [(each.decode_ms, each.preprocess_ms) for each in facts] == [(0.0, 0.0)] * 2


@pytest.mark.parametrize(
    ("dtype", "numpy_dtype"),
    [("float32", np.float32), ("bfloat16", np.uint16), ("uint8", np.uint8)],
)
def test_buffer_and_array_agree(dtype: Any, numpy_dtype: Any) -> None:
    processor = ImageProcessor(KIMI, replace(DISPLAY, dtype=dtype))
    image, patches = processor.process_array(PNG)
    assert patches.dtype == numpy_dtype
    out = bytearray(max_patches(KIMI) * patch_bytes(KIMI, processor.rules.dtype))
    written = processor.process(PNG, memoryview(out))
    assert out[: written.nbytes] == patches.tobytes()
    assert replace(written, decode_ms=image.decode_ms, preprocess_ms=image.preprocess_ms) == image


def test_a_short_buffer_is_too_large_an_image() -> None:
    processor = ImageProcessor(KIMI, DISPLAY)
    needed = processor.process_array(PNG)[0].nbytes
    processor.process(PNG, memoryview(bytearray(needed)))
    with pytest.raises(MediaTooLargeError, match=f"needs {needed} bytes"):
        processor.process(PNG, memoryview(bytearray(needed - 1)))


def test_any_image_fits_the_largest_output() -> None:
    processor = ImageProcessor(KIMI, replace(DISPLAY, dtype="uint8"))
    out = memoryview(bytearray(max_patches(KIMI) * patch_bytes(KIMI, processor.rules.dtype)))
    image = processor.process(encoded(picture(489, 7081), "PNG"), out)
    assert image.num_tokens == 4464


def test_hash_covers_bytes_and_settings() -> None:
    crop = replace(KIMI, in_patch_limit=64)
    variants = [
        ImageProcessor(KIMI, DISPLAY),
        ImageProcessor(KIMI, replace(DISPLAY, policy="checkpoint")),
        ImageProcessor(KIMI, replace(DISPLAY, background=(0, 0, 0))),
        ImageProcessor(KIMI, replace(DISPLAY, dtype="bfloat16")),
        ImageProcessor(crop, DISPLAY),
    ]
    hashes = [variant.process_array(PNG)[0].sha256 for variant in variants]
    hashes.append(variants[0].process_array(PNG + b"\0")[0].sha256)
    assert len(set(hashes)) == len(hashes)
    assert {len(value) for value in hashes} == {64}
    assert variants[0].process_array(PNG)[0].sha256 == hashes[0]


def test_hash_does_not_cover_what_changes_no_pixel() -> None:
    one = ImageProcessor(KIMI, DISPLAY).process_array(PNG)[0].sha256
    rules = replace(DISPLAY, formats=("png",), max_pixels=10**6, max_bytes=10**6)
    assert ImageProcessor(KIMI, rules).process_array(PNG)[0].sha256 == one


def test_equal_pixels_in_other_shapes_hash_apart() -> None:
    processor = ImageProcessor(KIMI, DISPLAY)
    hashes = {
        processor.process_array((DATA / "images" / name).read_bytes())[0].sha256
        for name in ("same_bytes_6x4.png", "same_bytes_4x6.png")
    }
    assert len(hashes) == 2
