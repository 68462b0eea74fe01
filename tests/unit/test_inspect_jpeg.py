"""Which files a GPU's JPEG decoder may see, and what is known of them before."""

from __future__ import annotations

from dataclasses import replace

import pytest
from image_samples import DATA, DISPLAY, encoded, picture

from kimi_serve.preprocess.images.decode import JpegHeader, decode_image, inspect_jpeg

IMAGES = DATA / "images"
CHECKPOINT = replace(DISPLAY, policy="checkpoint")


@pytest.mark.parametrize(
    ("name", "subsampling"),
    [("base_444.jpg", "444"), ("base_420.jpg", "420"), ("gray.jpg", "Gray"),
     ("progressive.jpg", "420"), ("restart.jpg", "420")],
)  # fmt: skip
def test_plain_files_are_known(name: str, subsampling: str) -> None:
    data = (IMAGES / name).read_bytes()
    header = inspect_jpeg(data, DISPLAY)
    assert header == JpegHeader(decode_image(data, DISPLAY).size, 1, subsampling)


@pytest.mark.parametrize(
    "name",
    ["cmyk.jpg", "mpo.jpg", "truncated.jpg", "no_eoi.jpg", "trailing_garbage.jpg",
     "png_as.jpg", "soi_only.jpg", "truncated_header.jpg", "height_lie_65500.jpg",
     "html_404_as.jpg"],
)  # fmt: skip
def test_everything_else_is_left_to_the_one_decoder(name: str) -> None:
    assert inspect_jpeg((IMAGES / name).read_bytes(), DISPLAY) is None


def test_an_rgb_jpeg_is_left_too() -> None:
    data = encoded(picture(), "JPEG", keep_rgb=True, subsampling=0)
    assert inspect_jpeg(data, DISPLAY) is None
    assert decode_image(data, DISPLAY).format == "jpeg"


@pytest.mark.parametrize("value", range(1, 9))
def test_the_orientation_is_the_policys(value: int) -> None:
    exif = picture().getexif()
    exif[0x0112] = value
    data = encoded(picture(), "JPEG", exif=exif)
    shown, exact = inspect_jpeg(data, DISPLAY), inspect_jpeg(data, CHECKPOINT)
    assert shown is not None
    assert exact is not None
    assert (shown.orientation, exact.orientation) == (value, 1)


def test_limits_hold_before_any_decoder() -> None:
    data = (IMAGES / "base_444.jpg").read_bytes()
    for rules in (
        replace(DISPLAY, max_bytes=len(data) - 1),
        replace(DISPLAY, max_pixels=100),
        replace(DISPLAY, formats=("png",)),
    ):
        assert inspect_jpeg(data, rules) is None
