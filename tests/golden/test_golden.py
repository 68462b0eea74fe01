"""Byte-equal to the checkpoint's own processor, under the policy that promises it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from image_samples import DATA, DEFAULT_FORMATS, DISPLAY, KIMI, encoded, load_json
from numpy.typing import NDArray
from PIL import Image

from kimi_serve.preprocess.images.decode import decode_image
from kimi_serve.preprocess.images.image_processor import ImageProcessor
from kimi_serve.preprocess.images.kimi import plan_resize, resize_pixels
from kimi_serve.schemas.worker import ResizeConfig

GOLDEN = load_json("golden/golden.json")
EXTERNAL = load_json("golden/external.json")
CHECKPOINT = replace(DISPLAY, policy="checkpoint", formats=DEFAULT_FORMATS)


def _config(values: Any) -> ResizeConfig:
    mean, std = tuple(values["image_mean"]), tuple(values["image_std"])
    return ResizeConfig(**(values | {"image_mean": mean, "image_std": std}))


def _sha256(array: NDArray[Any]) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


@pytest.mark.parametrize(
    "case", GOLDEN["cases"], ids=[f"{n}-{c['file']}" for n, c in enumerate(GOLDEN["cases"])]
)
def test_pixels_equal_the_checkpoint(case: dict[str, Any]) -> None:
    data = (DATA / "golden" / case["file"]).read_bytes()
    config = _config(case["config"])
    image, patches = ImageProcessor(config, CHECKPOINT).process_array(data)
    assert (image.width, image.height) == (case["width"], case["height"])
    assert list(image.resized) == case["new_size"]
    assert list(image.grid_thw) == case["grid_thw"]
    assert image.num_tokens == case["num_tokens"]
    assert list(image.shape) == list(patches.shape) == case["shape"]
    # The samples, and pixel_sha256 where both hashes exist, are of a Pillow that resizes tall
    # images vertically first; we never do.
    for *place, value, little_endian in (
        case["samples"] if "hfirst_pixel_sha256" not in case else ()
    ):
        sample = patches[tuple(place)]
        assert (float(sample), sample.tobytes().hex()) == (value, little_endian)
    assert _sha256(patches) == case.get("hfirst_pixel_sha256", case["pixel_sha256"])


@pytest.mark.parametrize(
    "case", GOLDEN["cases"], ids=[f"{n}-{c['file']}" for n, c in enumerate(GOLDEN["cases"])]
)
def test_canvas_equals_the_checkpoint(case: dict[str, Any]) -> None:
    pixels = decode_image((DATA / "golden" / case["file"]).read_bytes(), CHECKPOINT).pixels
    assert _sha256(pixels) == case["rgb_sha256"]
    plan = plan_resize(case["width"], case["height"], _config(case["config"]))
    assert [plan.padded_width, plan.padded_height] == case["padded_size"]
    resized = resize_pixels(pixels, plan)
    canvas = np.zeros((plan.padded_height, plan.padded_width, 3), np.uint8)
    canvas[: plan.new_height, : plan.new_width] = resized
    assert _sha256(canvas) == case.get("hfirst_canvas_sha256", case["canvas_sha256"])


def test_plans_equal_the_checkpoint() -> None:
    rows = GOLDEN["plans"]["rows"]
    assert len(rows) == 394
    for limit, width, height, *expected in rows:
        plan = plan_resize(width, height, replace(KIMI, in_patch_limit=limit))
        _, grid_h, grid_w = plan.grid_thw
        got = [plan.new_width, plan.new_height, grid_h, grid_w, plan.num_tokens]
        assert got == expected, (limit, width, height)


def _external_picture(name: str, width: int, height: int) -> bytes:
    y, x = np.mgrid[:height, :width]
    if name.startswith("xy_gradient"):
        channels = [7 * x + 3 * y + 11, 5 * x + 13 * y + 29, 17 * x + 9 * y + 47]
        pixels = np.stack(channels, axis=2) % 256
    else:
        pixels = np.array([[20, 40, 220], [235, 190, 25]])[(x // 5 + y // 5) % 2]
    return encoded(Image.fromarray(pixels.astype(np.uint8)), "PNG")


def _external_sha256(bits: NDArray[np.uint16]) -> str:
    head = {"dtype": "bfloat16", "shape": list(bits.shape)}
    text = json.dumps(head, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode() + b"\0" + bits.tobytes()).hexdigest()


def test_bfloat16_equals_a_published_contract() -> None:
    processor = ImageProcessor(KIMI, replace(CHECKPOINT, dtype="bfloat16"))
    both: list[NDArray[np.uint16]] = []
    for entry in EXTERNAL["images"]:
        data = _external_picture(entry["id"], entry["width"], entry["height"])
        image, bits = processor.process_array(data)
        assert (list(image.grid_thw), image.num_tokens) == (entry["grid_thw"], entry["tokens"])
        assert _external_sha256(bits) == entry["bf16_sha256"]
        both.append(bits)
    joined = np.concatenate(both)
    assert _external_sha256(joined) == EXTERNAL["both_concatenated_bf16_sha256"]
