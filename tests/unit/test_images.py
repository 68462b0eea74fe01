"""Every picture of the corpus has its stated outcome under the default policy."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from image_samples import ALL_FORMATS, DATA, DEFAULT_FORMATS, DISPLAY, KIMI, load_json

from kimi_serve.preprocess.images.decode import decode_image
from kimi_serve.preprocess.images.kimi import plan_resize
from kimi_serve.preprocess.images.sniff import FORMAT_NAMES, sniff
from kimi_serve.schemas.errors import MediaError, UnsupportedMediaError
from kimi_serve.schemas.worker import ImageRules

CHECKPOINT = replace(DISPLAY, policy="checkpoint")
IMAGES: dict[str, dict[str, Any]] = load_json("images.json")

# The corpus leaves these open; this is what we do.
OPEN_OUTCOMES = {
    "bad_crc_text.png": "rejected: a damaged chunk, even an ancillary one, is a damaged file",
    "bad_entropy.jpg": "accepted: libjpeg resynchronises, as the checkpoint's own processor does",
    "gray16.tif": "accepted when TIFF is listed: high bytes, like a 16-bit PNG",
    "height_lie_65500.jpg": "accepted under the pixel cap: the missing rows are grey",
    "p_short_palette.png": "accepted: indices past the palette are black, as in Pillow",
}
# No setting can list these formats.
UNLISTABLE = {"icon.ico": "ICO", "rgb.jp2": "JPEG 2000"}

REJECTED = [
    name
    for name, entry in IMAGES.items()
    if entry["class"] == "reject" or OPEN_OUTCOMES.get(name, "").startswith("rejected")
]
ACCEPTED = [name for name in IMAGES if name not in REJECTED and name not in UNLISTABLE]
# Words that the message must hold: the format, or the fault.
FAULTS = {
    "bad_crc_ihdr.png": "checksum", "bad_crc_text.png": "checksum", "bad_zlib.png": "broken",
    "bomb_144mp.png": "12000 x 12000", "bomb_400mp.png": "20000 x 20000",
    "bomb_ihdr_lie.png": "65535 x 65535", "broken_second_idat.png": "broken",
    "dim0.png": "no size", "elf_as.png": "ELF", "eps.eps": "EPS", "fake_avif.avif": "AVIF",
    "float32.tif": "floating point", "html_404_as.jpg": "HTML", "json_error_as.png": "JSON",
    "leading_newline.jpg": "in front", "mp4_as.jpg": "MP4", "no_eoi.jpg": "truncated",
    "one.bin": "no known image format", "p_no_palette.png": "palette", "pdf_as.jpg": "PDF",
    "precision12_claim.jpg": "12-bit", "sof3_lossless_claim.jpg": "broken",
    "soi_eoi.jpg": "no size", "soi_only.jpg": "not a JPEG", "spaces.bin": "white space",
    "svg_as.png": "SVG is not supported", "truncated.jpg": "truncated",
    "truncated.png": "truncated", "truncated.webp": "WebP",
    "truncated_header.jpg": "Truncated", "wmf.wmf": "WMF", "ztxt_bomb.png": "too large",
}  # fmt: skip


def _read(name: str) -> bytes:
    return (DATA / "images" / name).read_bytes()


def test_open_outcomes_are_all_decided() -> None:
    undecided = {name for name, entry in IMAGES.items() if entry["class"] == "ok-or-reject"}
    assert undecided == OPEN_OUTCOMES.keys()


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted(name: str) -> None:
    entry = IMAGES[name]
    decoded = decode_image(_read(name), DISPLAY)
    pixels = decoded.pixels
    assert (pixels.dtype, pixels.flags.c_contiguous) == (np.uint8, True)
    height, width, _ = pixels.shape
    assert [width, height] == entry["size"]
    assert pixels.mean(axis=(0, 1)) == pytest.approx(entry["mean"], abs=0.6)
    half_y, half_x = max(1, height // 2), max(1, width // 2)
    corners = [
        pixels[rows, columns].reshape(-1, 3)
        for rows in (slice(half_y), slice(height - half_y, None))
        for columns in (slice(half_x), slice(width - half_x, None))
    ]
    # 16-bit entries state no quadrants: the engines do not have them right.
    for corner, mean in zip(corners, entry.get("quad_mean", ()), strict="quad_mean" in entry):
        assert corner.mean(axis=0) == pytest.approx(mean, abs=1.0)
    if "rgb_sha256_16" in entry:
        assert hashlib.sha256(pixels.tobytes()).hexdigest()[:16] == entry["rgb_sha256_16"]


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted_grid(name: str) -> None:
    navit = IMAGES[name]["navit"]
    width, height = IMAGES[name]["size"]
    plan = plan_resize(width, height, KIMI)
    assert [plan.new_width, plan.new_height] == navit["resize"]
    padding = [plan.padded_width - plan.new_width, plan.padded_height - plan.new_height]
    assert padding == navit["pad"]
    assert list(plan.grid_thw) == navit["grid_thw"]
    assert plan.num_tokens == navit["tokens"]


@pytest.mark.parametrize("name", [name for name in ACCEPTED if "parity_ignore" in IMAGES[name]])
def test_checkpoint_policy_ignores_orientation(name: str) -> None:
    expected = IMAGES[name]["parity_ignore"]
    decoded = decode_image(_read(name), CHECKPOINT)
    height, width, _ = decoded.pixels.shape
    assert [width, height] == expected["size"]
    assert decoded.pixels.mean(axis=(0, 1)) == pytest.approx(expected["mean"], abs=0.6)
    assert decoded.orientation_applied is False
    assert decode_image(_read(name), DISPLAY).orientation_applied is True


@pytest.mark.parametrize("name", [name for name in ACCEPTED if "engines" in IMAGES[name]])
def test_checkpoint_policy_is_what_the_checkpoint_sees(name: str) -> None:
    size, mean = IMAGES[name]["engines"]["sglang_cpu"]
    pixels = decode_image(_read(name), CHECKPOINT).pixels
    assert [pixels.shape[1], pixels.shape[0]] == size
    assert pixels.mean(axis=(0, 1)) == pytest.approx(mean, abs=0.01)


@pytest.mark.parametrize(
    ("name", "rules"),
    [(name, DISPLAY) for name in REJECTED]
    # The checkpoint's own processor converts floating point, to black.
    + [(name, CHECKPOINT) for name in REJECTED if name != "float32.tif"],
)
def test_rejected(name: str, rules: ImageRules) -> None:
    with pytest.raises(MediaError) as caught:
        decode_image(_read(name), rules)
    assert caught.value.status in (400, 413, 415)
    assert FAULTS[name] in caught.value.message
    assert "0x" not in caught.value.message
    assert "/" not in caught.value.message


@pytest.mark.parametrize("name", UNLISTABLE)
def test_formats_that_cannot_be_listed(name: str) -> None:
    with pytest.raises(UnsupportedMediaError) as caught:
        decode_image(_read(name), DISPLAY)
    assert caught.value.status == 415
    expected = f"{UNLISTABLE[name]} images are not accepted: send JPEG, PNG, WebP, GIF"
    assert caught.value.message.startswith(expected)


@pytest.mark.parametrize(
    "name", [name for name in IMAGES if sniff(_read(name)).format in ("bmp", "tiff", "avif")]
)
def test_default_formats(name: str) -> None:
    found = sniff(_read(name)).format
    assert found is not None
    with pytest.raises(UnsupportedMediaError) as caught:
        decode_image(_read(name), replace(DISPLAY, formats=DEFAULT_FORMATS))
    expected = f"{FORMAT_NAMES[found]} images are not accepted: send JPEG, PNG, WebP or GIF"
    assert caught.value.message == expected


def test_corpus_holds_every_listable_format() -> None:
    assert {sniff(_read(name)).format for name in ACCEPTED} == set(ALL_FORMATS)
