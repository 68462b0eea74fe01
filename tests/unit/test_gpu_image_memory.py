"""What one image takes of a GPU, by arithmetic alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from image_samples import KIMI

from kimi_serve.preprocess.cuda.memory import (
    MIB,
    STRIP_BYTES,
    StripPlan,
    largest_peak_bytes,
    plan_strips,
)
from kimi_serve.preprocess.images.kimi import plan_resize

SIZES = [(1, 1), (640, 480), (4000, 3000), (3000, 4000), (8000, 6000), (7168, 100), (57, 9000),
         (20000, 50), (50, 20000), (65535, 762), (762, 65535), (7071, 7071)]  # fmt: skip


def strips(width: int, height: int, *, is_turned: bool = False) -> StripPlan:
    plan = plan_resize(width, height, KIMI)
    resized = (plan.new_width, plan.new_height)
    return plan_strips((width, height), resized, KIMI, "float32", is_turned=is_turned)


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_a_strip_is_bounded_whatever_the_image(width: int, height: int) -> None:
    found = strips(width, height)
    assert found.rows >= 1
    assert found.strip_bytes <= STRIP_BYTES
    assert found.decoded_bytes == 3 * width * height


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_no_image_exceeds_the_largest(width: int, height: int) -> None:
    assert strips(width, height, is_turned=True).peak_bytes <= largest_peak_bytes(width * height)


def test_small_images_are_one_strip() -> None:
    assert strips(640, 480).rows == -(-480 // 14)
    assert strips(4000, 3000).rows < 1554 // 14


def test_turning_on_the_device_is_a_second_copy() -> None:
    plain, turned = strips(4000, 3000), strips(4000, 3000, is_turned=True)
    assert turned.peak_bytes - plain.peak_bytes == 3 * 4000 * 3000


def test_the_default_limit_of_pixels_needs_what_the_page_says() -> None:
    assert -(-largest_peak_bytes(50_000_000) // MIB) == 339


def test_compact_types_take_no_more() -> None:
    plan = plan_resize(4000, 3000, KIMI)
    resized = (plan.new_width, plan.new_height)
    wide = plan_strips((4000, 3000), resized, KIMI, "float32")
    for dtype in ("bfloat16", "uint8"):
        compact = plan_strips((4000, 3000), resized, replace(KIMI), dtype)
        assert compact.rows >= wide.rows
