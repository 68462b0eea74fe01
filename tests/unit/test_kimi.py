"""The resize arithmetic: invariants, the bound on patches, and the order of the passes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from image_samples import KIMI
from PIL import Image

from kimi_serve.preprocess.images.kimi import plan_resize, resize_pixels
from kimi_serve.schemas.patch_bound import max_patches
from kimi_serve.schemas.worker import ResizeConfig

SIDES = st.one_of(st.integers(1, 9000), st.integers(1, 10**6))


@given(SIDES, SIDES)
@example(1, 1)
@example(489, 7081)
@example(10**6, 1)
def test_plan_invariants(width: int, height: int) -> None:
    plan = plan_resize(width, height, KIMI)
    _, rows, columns = plan.grid_thw
    assert 1 <= plan.new_width <= min(width, 7168)
    assert 1 <= plan.new_height <= min(height, 7168)
    assert (plan.padded_width, plan.padded_height) == (14 * columns, 14 * rows)
    assert 0 <= plan.padded_width - plan.new_width < 28
    assert 0 <= plan.padded_height - plan.new_height < 28
    assert rows % 2 == columns % 2 == 0
    assert max(rows, columns) <= 512
    assert plan.num_patches == rows * columns == 4 * plan.num_tokens
    assert plan.num_tokens >= 1
    assert plan.num_patches <= max_patches(KIMI)


@given(SIDES, SIDES)
def test_the_plan_of_the_turned_image_is_the_turned_plan(width: int, height: int) -> None:
    plan, turned = plan_resize(width, height, KIMI), plan_resize(height, width, KIMI)
    assert plan.grid_thw == (1, turned.grid_thw[2], turned.grid_thw[1])
    assert (plan.new_width, plan.new_height) == (turned.new_height, turned.new_width)


@settings(max_examples=300)
@given(
    SIDES,
    SIDES,
    st.integers(1, 70000),
    st.integers(1, 600),
    st.sampled_from([8, 14, 16, 28]),
    st.integers(1, 4),
)
@example(100000, 14, 100, 512, 14, 2)
@example(14, 100000, 1, 512, 14, 2)
def test_no_image_exceeds_the_bound(
    width: int, height: int, limit: int, side: int, patch: int, merge: int
) -> None:
    config = ResizeConfig(limit, side, patch, merge, KIMI.image_mean, KIMI.image_std)
    assert plan_resize(width, height, config).num_patches <= max_patches(config)


@pytest.mark.parametrize(("limit", "side"), [(16, 8), (64, 9), (5, 40), (400, 10), (50, 50)])
def test_the_bound_is_tight_for_small_limits(limit: int, side: int) -> None:
    config = replace(KIMI, in_patch_limit=limit, patch_limit_on_one_side=side, patch_size=2)
    sizes = [(w, h) for w in range(1, 140) for h in range(1, 140)]
    largest = max(plan_resize(w, h, config).num_patches for w, h in sizes)
    assert largest <= max_patches(config)


def test_the_largest_known_image_of_the_family() -> None:
    assert plan_resize(489, 7081, KIMI).num_patches == 17856
    assert 17856 <= max_patches(KIMI) <= 18025


def _noise(width: int, height: int) -> np.ndarray[tuple[int, int, int], np.dtype[np.uint8]]:
    return np.random.default_rng(3).integers(0, 256, (height, width, 3), np.uint8)


@pytest.mark.parametrize(("width", "height"), [(40, 400), (400, 40), (90, 300), (300, 90)])
def test_horizontal_pass_is_always_first(width: int, height: int) -> None:
    config = replace(KIMI, in_patch_limit=40)
    plan = plan_resize(width, height, config)
    pixels = _noise(width, height)
    horizontal = Image.fromarray(pixels).resize((plan.new_width, height), Image.Resampling.BICUBIC)
    # A transposed image makes the second pass a lone horizontal one, whatever Pillow prefers.
    turned = horizontal.transpose(Image.Transpose.TRANSPOSE)
    both = turned.resize((plan.new_height, plan.new_width), Image.Resampling.BICUBIC)
    expected = np.asarray(both.transpose(Image.Transpose.TRANSPOSE))
    assert np.array_equal(resize_pixels(pixels, plan), expected)


def test_a_size_that_stays_is_left_alone() -> None:
    pixels = _noise(57, 29)
    assert resize_pixels(pixels, plan_resize(57, 29, KIMI)) is pixels
