"""RGB under both policies: transparency, 16-bit grey, orientation, and what is refused."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from image_samples import DISPLAY, encoded, picture, png_chunk, raw_png
from numpy.typing import NDArray
from PIL import Image, ImageOps

from kimi_serve.preprocess.images.decode import decode_image
from kimi_serve.preprocess.images.display import checkpoint_pixels, display_pixels, upright
from kimi_serve.schemas.errors import MediaError

CHECKPOINT = replace(DISPLAY, policy="checkpoint")
WHITE = (255, 255, 255)
TEAL = (0, 128, 128)


def _exif(orientation: int, kind: int = 3, *, order: str = ">") -> bytes:
    """Give an EXIF block with nothing but an orientation of the given TIFF type."""
    mark = b"MM" if order == ">" else b"II"
    value = struct.pack(order + {3: "H2x", 4: "I"}[kind], orientation)
    tag = struct.pack(order + "HHI", 0x0112, kind, 1) + value
    return b"Exif\0\0" + mark + struct.pack(order + "HIH", 42, 8, 1) + tag + b"\0\0\0\0"


def _xmp(text: str) -> bytes:
    return f"<x:xmpmeta xmlns:x='adobe:ns:meta/'><rdf:Description {text}</x:xmpmeta>".encode()


def _turned(image: Image.Image, orientation: int) -> NDArray[np.uint8]:
    """Give what another implementation makes of the same orientation."""
    image = image.copy()
    image.getexif()[0x0112] = orientation
    return np.asarray(ImageOps.exif_transpose(image))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_upright_equals_another_implementation(orientation: int) -> None:
    image = picture()
    got = upright(np.asarray(image), orientation)
    assert got.flags.c_contiguous
    assert np.array_equal(got, _turned(image, orientation))


@pytest.mark.parametrize("mode", ["RGB", "L", "LA", "RGBA", "P", "1", "CMYK"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_every_mode_in_every_orientation(mode: str, orientation: int) -> None:
    image = picture().convert(mode)
    options: dict[str, Any] = {"exif": _exif(orientation)[6:]}
    image_format = "TIFF" if mode == "CMYK" else "PNG"
    if mode == "CMYK":
        image_format, options = "JPEG", {"exif": _exif(orientation), "quality": 95}
    data = encoded(image, image_format, **options)
    decoded = decode_image(data, DISPLAY)
    flat = decode_image(data, CHECKPOINT)
    assert flat.orientation_applied is False
    assert decoded.orientation_applied is (orientation != 1)
    expected = _turned(Image.fromarray(flat.pixels), orientation)
    assert np.array_equal(decoded.pixels, expected)
    assert flat.pixels.shape[:2] == (30, 40)


@pytest.mark.parametrize("image_format", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF", "MPO"])
@pytest.mark.parametrize("orientation", [2, 3, 6, 7])
def test_orientation_in_every_container(image_format: str, orientation: int) -> None:
    image = picture()
    exif = image.getexif()
    exif[0x0112] = orientation
    decoded = decode_image(encoded(image, image_format, exif=exif, quality=95), DISPLAY)
    assert decoded.orientation_applied is True
    expected = _turned(picture(), orientation).astype(int)
    assert decoded.pixels.shape == expected.shape
    # Chroma blurs at the edges; any other turn of this picture is off by more than 40.
    assert np.abs(decoded.pixels - expected).mean() < 8


@pytest.mark.parametrize(
    "exif",
    [
        _exif(0), _exif(9), _exif(65535), _exif(1), b"Exif\0\0", b"Exif\0\0MM", b"Exif\0\0garbage",
        _exif(6)[:20], _exif(6).replace(b"\0\0\0\x08", b"\xff\xff\xff\xff"), b"",
        _exif(6).replace(b"\x01\x12", b"\x01\x13"),
    ],
)  # fmt: skip
def test_other_or_damaged_orientation_is_ignored(exif: bytes) -> None:
    decoded = decode_image(encoded(picture(), "JPEG", exif=exif), DISPLAY)
    assert decoded.orientation_applied is False
    assert decoded.pixels.shape == (30, 40, 3)


@pytest.mark.parametrize("order", [">", "<"])
@pytest.mark.parametrize("kind", [3, 4])
def test_orientation_of_any_integer_type(order: str, kind: int) -> None:
    decoded = decode_image(encoded(picture(), "JPEG", exif=_exif(6, kind, order=order)), DISPLAY)
    assert decoded.pixels.shape == (40, 30, 3)


@pytest.mark.parametrize(
    "text",
    [
        'tiff:Orientation="6"/>', "tiff:Orientation='6'/>", 'tiff:Orientation = "6" />',
        "><tiff:Orientation>6</tiff:Orientation>", "><tiff:Orientation> 6 </tiff:Orientation>",
    ],
)  # fmt: skip
def test_orientation_from_xmp(text: str) -> None:
    for image_format in ("JPEG", "WEBP", "AVIF"):
        data = encoded(picture(), image_format, xmp=_xmp(text))
        assert decode_image(data, DISPLAY).pixels.shape == (40, 30, 3)
        assert decode_image(data, CHECKPOINT).pixels.shape == (30, 40, 3)


def test_exif_wins_over_xmp_unless_it_is_damaged() -> None:
    xmp = _xmp('tiff:Orientation="6"/>')
    three = decode_image(encoded(picture(), "JPEG", exif=_exif(3), xmp=xmp), DISPLAY)
    assert three.pixels.shape == (30, 40, 3)
    assert three.orientation_applied is True
    damaged = decode_image(encoded(picture(), "JPEG", exif=b"Exif\0\0junk", xmp=xmp), DISPLAY)
    assert damaged.pixels.shape == (40, 30, 3)


def test_orientation_behind_the_pixels_of_a_png() -> None:
    data = encoded(picture(), "PNG")
    late = data[:-12] + png_chunk(b"eXIf", _exif(6)[6:]) + data[-12:]
    assert decode_image(late, DISPLAY).pixels.shape == (40, 30, 3)


@pytest.mark.parametrize("background", [WHITE, TEAL])
@pytest.mark.parametrize("mode", ["RGBA", "LA", "PA", "La", "RGBa"])
def test_alpha_is_composited(mode: str, background: tuple[int, int, int]) -> None:
    # A shade that the web palette of mode P holds exactly.
    rgba = Image.new("RGBA", (3, 1), (102, 102, 102, 255))
    rgba.putpixel((1, 0), (102, 102, 102, 0))
    rgba.putpixel((2, 0), (102, 102, 102, 128))
    if mode == "PA":
        image = rgba.convert("RGB").convert("P").convert("PA")
        image.putalpha(rgba.getchannel("A"))
    else:
        image = rgba.convert("LA" if mode == "La" else "RGBA").convert(mode)
    assert image.mode == mode
    pixels = np.asarray(display_pixels(image, background))
    half = [round(102 * 128 / 255 + shade * 127 / 255) for shade in background]
    assert pixels[0, 0].tolist() == [102, 102, 102]
    assert pixels[0, 1].tolist() == list(background)
    assert np.abs(pixels[0, 2].astype(int) - half).max() <= 1


def test_checkpoint_drops_alpha() -> None:
    rgba = Image.new("RGBA", (1, 1), (10, 20, 30, 0))
    assert np.asarray(checkpoint_pixels(rgba)).tolist() == [[[10, 20, 30]]]


def test_palette_with_alpha_table() -> None:
    table = (b"PLTE", bytes([10, 20, 30, 40, 50, 60, 70, 80, 90]))
    for alphas in (b"\0", b"\0\xff\xff", b"\0\xff"):
        data = raw_png(3, 1, 8, 3, bytes([0, 1, 2]), table, (b"tRNS", alphas))
        assert decode_image(data, DISPLAY).pixels[0].tolist() == [
            [255, 255, 255], [40, 50, 60], [70, 80, 90],
        ]  # fmt: skip
        assert decode_image(data, CHECKPOINT).pixels[0, 0].tolist() == [10, 20, 30]


@pytest.mark.parametrize(
    ("depth", "rows", "key", "shades"),
    [
        (1, b"\x40", 1, [0, WHITE]),
        (1, b"\x40", 0, [WHITE, 255]),
        (2, b"\x60", 1, [WHITE, 170]),
        (2, b"\x60", 2, [85, WHITE]),
        (4, b"\x5a", 5, [WHITE, 170]),
        (4, b"\x5a", 10, [85, WHITE]),
        (8, b"\x55\xaa", 0x55, [WHITE, 170]),
        (8, b"\x55\xaa", 0x155, [85, 170]),
        (16, b"\x55\x01\x55\x02", 0x5501, [WHITE, 85]),
        (16, b"\x00\xff\xff\xff", 0x1234, [0, 255]),
    ],
)
def test_transparent_grey_of_every_depth(
    depth: int, rows: bytes, key: int, shades: list[Any]
) -> None:
    data = raw_png(2, 1, depth, 0, rows, (b"tRNS", struct.pack(">H", key)))
    for background in (WHITE, TEAL):
        pixels = decode_image(data, replace(DISPLAY, background=background)).pixels
        expected = [background if shade == WHITE else (shade, shade, shade) for shade in shades]
        assert [tuple(pixel) for pixel in pixels[0].tolist()] == expected


@pytest.mark.parametrize("depth", [8, 16])
def test_transparent_colour(depth: int) -> None:
    first, second = (10, 20, 30), (10, 20, 31)
    pack = ">3B" if depth == 8 else ">3H"
    scale = 1 if depth == 8 else 257
    rows = b"".join(struct.pack(pack, *(scale * s for s in pixel)) for pixel in (first, second))
    key = struct.pack(">3H", *(scale * sample for sample in first))
    data = raw_png(2, 1, depth, 2, rows, (b"tRNS", key))
    assert decode_image(data, DISPLAY).pixels[0].tolist() == [list(WHITE), list(second)]
    assert decode_image(data, CHECKPOINT).pixels[0].tolist() == [list(first), list(second)]


def test_transparent_gif_index() -> None:
    image = Image.new("P", (2, 1))
    image.putpalette([10, 20, 30, 40, 50, 60])
    image.putpixel((1, 0), 1)
    data = encoded(image, "GIF", transparency=1, optimize=False)
    assert decode_image(data, DISPLAY).pixels[0].tolist() == [[10, 20, 30], list(WHITE)]


def test_transparent_index_of_a_grey_gif() -> None:
    image = Image.new("L", (2, 1), 7)
    image.putpixel((1, 0), 9)
    data = encoded(image, "GIF", transparency=9, optimize=False)
    assert decode_image(data, DISPLAY).pixels[0].tolist() == [[7, 7, 7], list(WHITE)]


@pytest.mark.parametrize("mode", ["I;16", "I;16B", "I;16L", "I;16N"])
def test_deep_grey_keeps_the_high_byte(mode: str) -> None:
    values = np.array([[0, 255, 256, 0x7FFF, 0xFFFF]], np.uint16)
    order = {"I;16B": ">u2", "I;16N": "=u2"}.get(mode, "<u2")
    image = Image.frombytes(mode, (5, 1), values.astype(order).tobytes())
    assert np.asarray(display_pixels(image, WHITE))[0].tolist() == [
        [0] * 3, [0] * 3, [1] * 3, [127] * 3, [255] * 3,
    ]  # fmt: skip


def _white_zero_tiff(values: list[int], order: str, **options: Any) -> bytes:
    """Give a TIFF of 16-bit grey that is declared to count downwards."""
    mode = "I;16" if order == "<" else "I;16B"
    samples = np.array([values], np.uint16).astype(f"{order}u2")
    data = encoded(Image.frombytes(mode, (len(values), 1), samples.tobytes()), "TIFF", **options)
    tag = struct.pack(f"{order}HHIH", 0x0106, 3, 1, 1)
    assert data.count(tag) == 1
    return data.replace(tag, tag[:8] + struct.pack(f"{order}H", 0))


# Pillow writes compressed files in the machine's own byte order.
@pytest.mark.parametrize(
    ("order", "options"), [("<", {}), ("<", {"compression": "tiff_lzw"}), (">", {})]
)
def test_deep_grey_that_counts_downwards(order: str, options: dict[str, Any]) -> None:
    data = _white_zero_tiff([0, 0x00FF, 0x7FFF, 0xFFFF], order, **options)
    assert decode_image(data, DISPLAY).pixels[0, :, 0].tolist() == [255, 255, 128, 0]


def test_the_checkpoint_policy_takes_grey_that_counts_downwards_as_pillow_does() -> None:
    little = decode_image(_white_zero_tiff([0, 9], "<"), CHECKPOINT)
    assert little.pixels[0, :, 0].tolist() == [0, 9]
    with pytest.raises(MediaError, match="unknown pixel mode"):
        decode_image(_white_zero_tiff([0, 9], ">"), CHECKPOINT)


def test_deep_grey_with_alpha() -> None:
    rows = struct.pack(">4H", 0x8000, 0xFFFF, 0x8000, 0)
    pixels = decode_image(raw_png(2, 1, 16, 4, rows), DISPLAY).pixels
    assert pixels[0].tolist() == [[128, 128, 128], list(WHITE)]


@pytest.mark.parametrize(("mode", "says"), [("I", "32-bit integer"), ("F", "floating point")])
def test_samples_without_a_range_are_refused(mode: str, says: str) -> None:
    data = encoded(Image.new(mode, (4, 4)), "TIFF")
    with pytest.raises(MediaError, match=says):
        decode_image(data, DISPLAY)
    assert decode_image(data, CHECKPOINT).pixels.shape == (4, 4, 3)


def test_first_frame_only() -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("blue", "lime")]
    for image_format in ("GIF", "WEBP", "PNG", "TIFF", "AVIF", "MPO"):
        first = Image.new("RGB", (8, 8), "red")
        data = encoded(first, image_format, save_all=True, append_images=frames, quality=95)
        mean = decode_image(data, DISPLAY).pixels.mean(axis=(0, 1))
        assert mean == pytest.approx([255, 0, 0], abs=8), image_format
