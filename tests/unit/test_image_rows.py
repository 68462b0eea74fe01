"""Rows of docs/image-reports.md that no other test states as such; each is named after its row."""

from __future__ import annotations

import re
import struct
from dataclasses import replace
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from image_samples import DATA, DISPLAY, KIMI, encoded, picture
from PIL import Image, ImageCms, ImageFile

from kimi_serve.preprocess.images.decode import decode_image
from kimi_serve.preprocess.images.image_processor import ImageProcessor
from kimi_serve.schemas.errors import MediaError, UnsupportedMediaError

CHECKPOINT = replace(DISPLAY, policy="checkpoint")
IMAGES = DATA / "images"
ANIMATED = ("gif", "png", "webp", "tiff", "avif")


def read(name: str) -> bytes:
    return (IMAGES / name).read_bytes()


def pixels(data: bytes, rules: Any = DISPLAY) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return decode_image(data, rules).pixels


def test_a10_a11_kinds_of_channels_in_one_request_are_each_their_own() -> None:
    files = [read(name) for name in ("gray.jpg", "base_420.jpg", "rgba.png", "la.png", "p.png")]
    one = ImageProcessor(KIMI, DISPLAY)
    together = [one.process_array(data)[1] for data in files]
    for data, there in zip(files, together, strict=True):
        alone = ImageProcessor(KIMI, DISPLAY).process_array(data)[1]
        assert there.shape[1] == 3
        assert np.array_equal(there, alone)


def without_adobe(data: bytes) -> bytes:
    at = data.index(b"\xff\xee")
    return data[:at] + data[at + 2 + int.from_bytes(data[at + 2 : at + 4], "big") :]


def test_a17_a18_cmyk_is_pillow_s() -> None:
    assert pixels(read("cmyk.jpg")).mean(axis=(0, 1)) == pytest.approx((125, 123.5, 113.8), abs=0.1)


def test_a19_ycck_is_no_negative() -> None:
    """The same samples, marked as YCCK: decoded by Pillow's rule, as light as they were."""
    plain = encoded(Image.new("CMYK", (16, 16), (10, 20, 30, 5)), "JPEG", quality=95)
    at = plain.index(b"Adobe") + 11
    marked = plain[:at] + b"\2" + plain[at + 1 :]
    with Image.open(BytesIO(marked)) as image:
        expected = np.asarray(image.convert("RGB"))
    for rules in (DISPLAY, CHECKPOINT):
        assert np.array_equal(pixels(marked, rules), expected)


def test_a20_cmyk_without_a_marker_is_pillow_s() -> None:
    data = without_adobe(encoded(picture().convert("CMYK"), "JPEG"))
    with Image.open(BytesIO(data)) as image:
        assert np.array_equal(pixels(data), np.asarray(image.convert("RGB")))


def test_a27_black_on_clear_is_seen() -> None:
    shown = pixels(read("black_logo_clear_bg.png"))
    assert shown.min() == 0
    assert shown.max() == 255


@pytest.mark.parametrize("sent", ["GIF", "WEBP"])
def test_a38_a_cut_file_fails_where_it_is_decoded(sent: str) -> None:
    data = encoded(picture(64, 64), sent)
    with pytest.raises(MediaError):
        decode_image(data[: len(data) * 6 // 10], DISPLAY)


def test_a42_damage_is_never_hidden() -> None:
    assert ImageFile.LOAD_TRUNCATED_IMAGES is False
    with pytest.raises(MediaError):
        decode_image(read("bad_zlib.png"), DISPLAY)
    assert ImageFile.LOAD_TRUNCATED_IMAGES is False


def test_a43_missing_bytes_are_counted() -> None:
    with pytest.raises(MediaError, match=r"truncated.*\d+ bytes"):
        decode_image(read("no_eoi.jpg"), DISPLAY)


@pytest.mark.parametrize("bound", [None, 10, 10**12])
def test_a45_the_cap_is_ours_whatever_others_set(
    monkeypatch: pytest.MonkeyPatch, bound: int | None
) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", bound)
    assert pixels(read("57x29.png")).shape == (29, 57, 3)
    with pytest.raises(MediaError, match="20000 x 20000"):
        decode_image(read("bomb_400mp.png"), DISPLAY)
    assert bound == Image.MAX_IMAGE_PIXELS


SIZES = [(1, 1), (2, 2), (13, 13), (26, 28), (332, 27), (31, 639), (1, 10000), (10000, 1),
         (2, 1), (1093, 5), (305, 30), (29, 29), (3, 500), (5000, 1)]  # fmt: skip


@pytest.mark.parametrize("size", SIZES)
def test_a47_to_a53_any_size_has_a_token_and_three_channels(size: tuple[int, int]) -> None:
    data = encoded(Image.new("RGB", size, (9, 99, 199)), "PNG")
    facts, patches = ImageProcessor(KIMI, DISPLAY).process_array(data)
    assert (facts.width, facts.height) == size
    assert min(facts.resized) >= 1
    assert facts.num_tokens >= 1
    assert facts.num_tokens * 4 == patches.shape[0] == facts.grid_thw[1] * facts.grid_thw[2]
    # The first pixel of the first patch: red, green and blue, each in its channel.
    levels = (patches[0, :, 0, 0] * 0.5 + 0.5) * 255
    assert levels == pytest.approx((9, 99, 199), abs=0.01)


def test_a54_to_a56_what_is_not_accepted_is_named_with_what_is() -> None:
    for name, word in (("svg_as.png", "SVG"), ("icon.ico", "ICO"), ("eps.eps", "EPS")):
        with pytest.raises(MediaError) as caught:
            decode_image(read(name), DISPLAY)
        assert re.search(rf"{word}\b.*send JPEG, PNG", caught.value.message)
        assert "BytesIO" not in caught.value.message
    heic = struct.pack(">I", 24) + b"ftypheic" + b"\0\0\0\0heicmif1"
    with pytest.raises(UnsupportedMediaError, match="HEIC images are not accepted"):
        decode_image(heic, DISPLAY)
    with pytest.raises(UnsupportedMediaError, match="AVIF images are not accepted"):
        decode_image(read("alpha.avif"), replace(DISPLAY, formats=("jpeg", "png")))


def test_a57_every_kind_of_webp() -> None:
    for data in (
        read("lossy.webp"), read("alpha.webp"), read("anim.webp"),
        encoded(picture(), "WEBP", lossless=True), encoded(picture().convert("LA"), "WEBP"),
    ):  # fmt: skip
        assert pixels(data).std() > 1


def test_a60_frame_0_of_a_gif_is_rgb_like_every_other() -> None:
    frames = [picture().convert("P").rotate(angle) for angle in (0, 90)]
    data = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:], transparency=0)
    assert pixels(data).shape == (30, 40, 3)
    assert decode_image(data, CHECKPOINT).pixels.shape == (30, 40, 3)


def test_a61_a62_colour_profiles_change_nothing_and_break_nothing() -> None:
    cms: Any = ImageCms
    profile: bytes = cms.ImageCmsProfile(cms.createProfile("sRGB")).tobytes()
    plain = encoded(picture(), "PNG")
    for given in (profile, b"broken", profile[:40], b"\xff" * 128):
        assert np.array_equal(pixels(encoded(picture(), "PNG", icc_profile=given)), pixels(plain))
    jpeg = encoded(picture(), "JPEG")
    for given in (profile, profile[:40], b"\xff" * 200):
        tagged = encoded(picture(), "JPEG", icc_profile=given)
        assert np.array_equal(pixels(tagged), pixels(jpeg))


@pytest.mark.parametrize("image_format", ANIMATED)
def test_a59_later_frames_do_not_count(image_format: str) -> None:
    later = [Image.new("RGB", (40, 30), colour) for colour in ("blue", "lime")]
    options: dict[str, Any] = {"lossless": True} if image_format == "webp" else {}
    name = image_format.upper()
    many = encoded(picture(), name, save_all=True, append_images=later, **options)
    one = encoded(picture(), name, **options)
    assert np.abs(pixels(many).astype(int) - pixels(one)).max() <= 12  # AVIF is lossy
