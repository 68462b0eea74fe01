"""Patches in every dtype, bit by bit against the checkpoint's own order of steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
from image_samples import KIMI
from numpy.typing import NDArray

from kimi_serve.preprocess.images.kimi import plan_resize
from kimi_serve.preprocess.images.normalise import (
    NUMPY_DTYPES,
    Normaliser,
    normalisation_table,
    to_bfloat16,
)
from kimi_serve.schemas.vocabulary import ImageDtype
from kimi_serve.schemas.worker import ResizeConfig

CLIP = replace(
    KIMI,
    image_mean=(0.48145466, 0.4578275, 0.40821073),
    image_std=(0.26862954, 0.26130258, 0.27577711),
)
CONFIGS = {
    "kimi": KIMI,
    "clip": CLIP,
    "odd patch": replace(KIMI, patch_size=7),
    "odd patch, clip": replace(CLIP, patch_size=7),
    "patch 16": replace(KIMI, patch_size=16),
    "no merge": replace(KIMI, merge_kernel_size=1),
    "merge 3": replace(KIMI, merge_kernel_size=3),
    "zero mean": replace(KIMI, image_mean=(0.0, 0.0, 0.0), image_std=(1.0, 1.0, 1.0)),
}
DTYPES: tuple[ImageDtype, ...] = get_args(ImageDtype)


def _pixels(width: int, height: int) -> NDArray[np.uint8]:
    return np.random.default_rng(width).integers(0, 256, (height, width, 3), np.uint8)


def _slow(pixels: NDArray[np.uint8], config: ResizeConfig, dtype: str) -> NDArray[Any]:
    """Give the patches in the checkpoint's order: pad, divide, subtract, multiply, patchify."""
    height, width, _ = pixels.shape
    plan = plan_resize(width, height, config)
    padding = ((0, plan.padded_height - height), (0, plan.padded_width - width), (0, 0))
    canvas: NDArray[Any] = np.pad(pixels, padding)
    if dtype != "uint8":
        canvas = (canvas / 255.0).astype(np.float32)
        canvas -= np.array(config.image_mean)
        canvas *= 1 / np.array(config.image_std)
    _, rows, columns = plan.grid_thw
    side = config.patch_size
    patches = canvas.reshape(1, rows, side, columns, side, 3).transpose(0, 1, 3, 5, 2, 4)
    patches = np.ascontiguousarray(patches.reshape(-1, 3, side, side))
    return to_bfloat16(patches) if dtype == "bfloat16" else patches


@pytest.mark.parametrize("size", [(1, 1), (28, 28), (29, 27), (57, 29), (84, 200), (640, 48)])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CONFIGS)
def test_equal_to_the_slow_way(name: str, dtype: ImageDtype, size: tuple[int, int]) -> None:
    config, pixels = CONFIGS[name], _pixels(*size)
    plan = plan_resize(*size, config)
    expected = _slow(pixels, config, dtype)
    # Longer than needed and full of leftovers, as a slot of shared memory is.
    out = bytearray(b"\xee" * (expected.nbytes + 24))
    Normaliser(config, dtype).write(pixels, plan, memoryview(out))
    assert bytes(out[: expected.nbytes]) == expected.tobytes()
    assert bytes(out[expected.nbytes :]) == b"\xee" * 24


def test_the_next_image_sees_nothing_of_the_last() -> None:
    normaliser = Normaliser(KIMI, "float32")
    for size in ((200, 100), (30, 30), (57, 90)):
        pixels = _pixels(*size)
        plan = plan_resize(*size, KIMI)
        out = np.empty((plan.num_patches, 3, 14, 14), np.float32)
        normaliser.write(pixels, plan, out)
        assert out.tobytes() == _slow(pixels, KIMI, "float32").tobytes()


def test_table_of_the_family() -> None:
    table = normalisation_table(KIMI)
    assert table.shape == (3, 256)
    known = {0: "bf800000", 1: "bf7dfdfe", 127: "bb808080", 128: "3b808100", 255: "3f800000"}
    for value, bits in known.items():
        assert [f"{entry:08x}" for entry in table[:, value].view(np.uint32)] == [bits] * 3


def test_padding_is_the_normalised_zero() -> None:
    plan = plan_resize(1, 1, KIMI)
    out = np.empty((4, 3, 14, 14), np.float32)
    Normaliser(KIMI, "float32").write(np.full((1, 1, 3), 255, np.uint8), plan, out)
    assert out[0, :, 0, 0].tolist() == [1.0, 1.0, 1.0]
    out[0, :, 0, 0] = -1
    assert (out == -1.0).all()


def test_bfloat16_rounds_to_nearest_even() -> None:
    bits = np.array([0x3F808000, 0x3F818000, 0x3F808001, 0x3F807FFF, 0xBF808000], np.uint32)
    rounded = to_bfloat16(bits.view(np.float32))
    assert [f"{value:04x}" for value in rounded] == ["3f80", "3f82", "3f81", "3f80", "bf80"]


def test_a_short_buffer_is_refused() -> None:
    plan = plan_resize(28, 28, KIMI)
    with pytest.raises(ValueError, match="buffer"):
        Normaliser(KIMI, "uint8").write(_pixels(28, 28), plan, memoryview(bytearray(100)))


def test_dtypes_are_those_of_the_rules() -> None:
    assert set(NUMPY_DTYPES) == set(DTYPES)
