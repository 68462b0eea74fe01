"""Limits before decoders, one decoder a format, and nothing but MediaError out of bad bytes."""

from __future__ import annotations

import contextlib
import itertools
import random
import struct
import warnings
import zlib
from dataclasses import replace
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from image_samples import ALL_FORMATS, DISPLAY, encoded, picture, png_chunk, raw_png
from PIL import Image, ImageFile

from kimi_serve.preprocess.images import decode
from kimi_serve.preprocess.images.decode import decode_image
from kimi_serve.preprocess.images.headers import Declared, read_header
from kimi_serve.schemas.errors import MediaError, MediaTooLargeError, UnsupportedMediaError

CHECKPOINT = replace(DISPLAY, policy="checkpoint")
SMALL = replace(DISPLAY, max_pixels=1000)
PNG_HEAD = b"\x89PNG\r\n\x1a\n"


def _all_formats() -> dict[str, bytes]:
    files = {name: encoded(picture(), name.upper()) for name in ALL_FORMATS}
    files["progressive jpeg"] = encoded(picture(), "JPEG", progressive=True)
    files["cmyk jpeg"] = encoded(picture().convert("CMYK"), "JPEG")
    files["rgba png"] = encoded(picture().convert("RGBA"), "PNG")
    files["palette png"] = encoded(picture().convert("P"), "PNG", transparency=3)
    files["lossless webp"] = encoded(picture().convert("RGBA"), "WEBP", lossless=True)
    files["lzw tiff"] = encoded(picture(), "TIFF", compression="tiff_lzw")
    files["animated gif"] = encoded(picture(), "GIF", save_all=True, append_images=[picture(9, 9)])
    return files


FILES = _all_formats()


def _wrapped(cause: Exception) -> SyntaxError:
    """Give the error by which Pillow reports that a plugin failed on a header."""
    error = SyntaxError(cause)
    error.__cause__ = cause
    return error


def _webp(kind: bytes, body: bytes) -> bytes:
    chunk = kind + struct.pack("<I", len(body)) + body
    return b"RIFF" + struct.pack("<I", 4 + len(chunk)) + b"WEBP" + chunk


def _gif(screen: tuple[int, int], frame: tuple[int, int, int, int], *, table: str = "") -> bytes:
    """Give a GIF with a comment and one frame; `table` is 'global', 'local' or ''."""
    colours = bytes([9, 8, 7, 6, 5, 4])
    head = b"GIF89a" + struct.pack("<HHBBB", *screen, 0x80 if table == "global" else 0, 0, 0)
    head += colours if table == "global" else b""
    head += b"!\xfe\x03abc\x00" + b"!\xf9\x04\0\0\0\0\0"
    head += b"," + struct.pack("<HHHHB", *frame, 0x80 if table == "local" else 0)
    return head + (colours if table == "local" else b"") + b"\x02\x02\x44\x01\x00;"


BOMBS = {
    "png": FILES["png"][:8]
    + png_chunk(b"IHDR", struct.pack(">IIBBBBB", 65535, 65535, 8, 2, 0, 0, 0))
    + FILES["png"][33:],
    "jpeg": FILES["jpeg"].replace(struct.pack(">HH", 30, 40), struct.pack(">HH", 65000, 65000)),
    "webp lossy": _webp(b"VP8 ", b"\0\0\0\x9d\x01\x2a" + struct.pack("<HH", 16383, 16383)),
    "webp lossless": _webp(b"VP8L", b"\x2f" + struct.pack("<I", 0x3FFF | 0x3FFF << 14) + b"\0" * 9),
    "webp canvas": _webp(b"VP8X", b"\0\0\0\0" + b"\xff\xff\xff" * 2),
    "gif screen": _gif((65535, 65535), (0, 0, 1, 1), table="global"),
    "gif frame": _gif((1, 1), (0, 0, 65535, 65535), table="global"),
    "gif frame far out": _gif((1, 1), (65000, 65000, 9, 9), table="local"),
    "gif without frames": b"GIF89a" + struct.pack("<HHBBB", 65535, 65535, 0, 0, 0),
    "bmp": FILES["bmp"].replace(struct.pack("<II", 40, 30), struct.pack("<II", 60000, 60000)),
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_pixel_cap_comes_before_the_decoder(name: str) -> None:
    with pytest.raises(
        MediaTooLargeError, match=r"at most 50000000 are .*image\.max_pixels"
    ) as caught:
        decode_image(BOMBS[name], DISPLAY)
    assert caught.value.status == 413


@pytest.mark.parametrize("name", FILES)
def test_pixel_cap_is_exact(name: str) -> None:
    pixels = decode_image(FILES[name], replace(DISPLAY, max_pixels=1200)).pixels
    assert pixels.shape == (30, 40, 3)
    with pytest.raises(MediaTooLargeError, match="40 x 30 = 1200 pixels"):
        decode_image(FILES[name], replace(DISPLAY, max_pixels=1199))


def test_byte_cap() -> None:
    data = FILES["png"]
    decode_image(data, replace(DISPLAY, max_bytes=len(data)))
    with pytest.raises(MediaTooLargeError, match=f"has {len(data)} bytes"):
        decode_image(data, replace(DISPLAY, max_bytes=len(data) - 1))


def test_pillow_is_held_to_our_cap_and_left_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Image.MAX_IMAGE_PIXELS
    seen: list[int | None] = []

    def check(size: tuple[int, int], rules: object) -> None:
        seen.append(Image.MAX_IMAGE_PIXELS)

    monkeypatch.setattr(decode, "require_pixels", check)
    with pytest.raises(MediaTooLargeError, match="a frame of more than 1000 pixels"):
        decode_image(_gif((1, 1), (0, 0, 40, 30), table="global"), SMALL)
    decode_image(FILES["png"], SMALL)
    assert seen[-1] == 1000
    assert before == Image.MAX_IMAGE_PIXELS
    assert ImageFile.LOAD_TRUNCATED_IMAGES is False


@pytest.mark.parametrize("name", FILES)
def test_decoded_like_pillow(name: str) -> None:
    decoded = decode_image(FILES[name], CHECKPOINT)
    with Image.open(BytesIO(FILES[name])) as image, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = np.asarray(image.convert("RGB"))
    assert np.array_equal(decoded.pixels, expected)
    assert decoded.format == name.rpartition(" ")[2]


@pytest.mark.parametrize("subsampling", [0, 1, 2])
@pytest.mark.parametrize("size", [(1, 1), (7, 9), (16, 16), (33, 17)])
@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
def test_jpegs_are_decoded_to_the_bits_of_pillow(
    mode: str, size: tuple[int, int], subsampling: int
) -> None:
    noise = random.Random(1).randbytes(size[0] * size[1] * 3)
    image = Image.frombytes("RGB", size, noise).convert(mode)
    for options in ({}, {"progressive": True}, {"restart_marker_blocks": 1}, {"quality": 98}):
        chosen: dict[str, Any] = {"subsampling": subsampling, **options}
        if mode == "L":
            del chosen["subsampling"]
        data = encoded(image, "JPEG", **chosen)
        with Image.open(BytesIO(data)) as opened:
            expected = np.asarray(opened.convert("RGB"))
        assert np.array_equal(decode_image(data, DISPLAY).pixels, expected)


def test_png_without_palette_is_refused() -> None:
    data = raw_png(2, 1, 8, 3, b"\0\1")
    for rules in (DISPLAY, CHECKPOINT):
        with pytest.raises(MediaError, match="indexed colours and no palette"):
            decode_image(data, rules)


def test_gif_without_colour_table_is_refused() -> None:
    for rules in (DISPLAY, CHECKPOINT):
        with pytest.raises(MediaError, match="no colour table"):
            decode_image(_gif((1, 1), (0, 0, 1, 1)), rules)
        assert decode_image(_gif((1, 1), (0, 0, 1, 1), table="local"), rules).pixels.any()


def test_png_with_an_empty_palette_is_refused() -> None:
    data = raw_png(2, 1, 8, 3, b"\0\1", (b"PLTE", b""))
    for rules in (DISPLAY, CHECKPOINT):
        with pytest.raises(MediaError, match="the PNG cannot be decoded"):
            decode_image(data, rules)


def test_gif_without_colour_table_behind_a_stray_byte_is_refused() -> None:
    for screen, junk in itertools.product(("", "global"), (b"\x07", b"\0\0")):
        data = _gif((1, 1), (0, 0, 1, 1), table=screen)
        at = data.index(b",")
        data = data[:at] + junk + data[at:]
        if screen:
            assert decode_image(data, DISPLAY).pixels.any()
            continue
        for rules in (DISPLAY, CHECKPOINT):
            with pytest.raises(MediaError, match="no colour table"):
                decode_image(data, rules)


@pytest.mark.parametrize("size", [(65_536, 1), (1, 65_536), (700_000, 2)])
@pytest.mark.parametrize("image_format", ["PNG", "BMP", "TIFF"])
def test_a_side_longer_than_a_filter_table_may_be_is_refused(
    image_format: str, size: tuple[int, int]
) -> None:
    data = encoded(Image.new("L", size), image_format)
    for rules in (DISPLAY, CHECKPOINT):
        with pytest.raises(MediaTooLargeError, match="a side may have 65535") as caught:
            decode_image(data, rules)
        assert caught.value.status == 413


def test_the_longest_side_is_decoded() -> None:
    data = encoded(Image.new("L", (65_535, 1), 9), "PNG")
    assert decode_image(data, DISPLAY).pixels.shape == (1, 65_535, 3)


def _declare_luma_sampling(data: bytes, sampling: int) -> bytes:
    """Change the sampling of the first component in the frame header of a baseline JPEG."""
    at = data.index(b"\xff\xc0") + 11
    assert data[at - 1] == 1
    return data[:at] + bytes([sampling]) + data[at + 1 :]


@pytest.mark.parametrize("sampling", [0x14, 0x41, 0x12, 0x21, 0x42, 0x24])
@pytest.mark.parametrize("size", [(8, 8), (8, 32), (32, 32), (64, 64)])
def test_odd_luma_sampling_is_decoded_to_the_bits_of_pillow(
    sampling: int, size: tuple[int, int]
) -> None:
    noise = Image.frombytes("RGB", size, random.Random(2).randbytes(size[0] * size[1] * 3))
    data = _declare_luma_sampling(encoded(noise, "JPEG", subsampling=0), sampling)
    try:
        with Image.open(BytesIO(data)) as image:
            expected = np.asarray(image.convert("RGB"))
    except OSError:
        with pytest.raises(MediaError):
            decode_image(data, DISPLAY)
        return
    for rules in (DISPLAY, CHECKPOINT):
        assert np.array_equal(decode_image(data, rules).pixels, expected)


def test_jpeg_with_too_many_scans_is_refused() -> None:
    data = encoded(picture(), "JPEG", progressive=True)
    start = data.rindex(b"\xff\xda")
    scans, last = data.count(b"\xff\xda"), data[start:-2]
    most = data[:-2] + last * (100 - scans) + data[-2:]
    for rules in (DISPLAY, CHECKPOINT):
        assert decode_image(most, rules).pixels.shape == (30, 40, 3)
        with pytest.raises(MediaError, match="more than 100 scans"):
            decode_image(most[:-2] + last + most[-2:], rules)


def test_a_failed_load_is_final() -> None:
    """Pillow's second load() of a damaged file succeeds and is black."""
    data = bytearray(encoded(Image.new("RGB", (64, 64), "white"), "PNG"))
    at = data.index(b"IDAT") + 8
    data[at : at + 20] = b"\xff" * 20
    with pytest.raises(MediaError, match="the PNG cannot be decoded"):
        decode_image(bytes(data), DISPLAY)


def test_text_chunk_bomb() -> None:
    bomb = png_chunk(b"zTXt", b"k\0\0" + zlib.compress(b"\0" * 40_000_000))
    data = FILES["png"][:33] + bomb + FILES["png"][33:]
    with pytest.raises(MediaError, match="too large"):
        decode_image(data, DISPLAY)


@pytest.mark.parametrize("name", FILES)
def test_every_truncation_is_a_media_error_or_the_whole_picture(name: str) -> None:
    data = FILES[name]
    whole = decode_image(data, DISPLAY).pixels
    for length in range(0, len(data), max(1, len(data) // 60)):
        with contextlib.suppress(MediaError):
            assert np.array_equal(decode_image(data[:length], DISPLAY).pixels, whole), length


def test_formats_outside_the_list() -> None:
    for name in ALL_FORMATS:
        others = tuple(other for other in ALL_FORMATS if other != name)
        with pytest.raises(UnsupportedMediaError, match="images are not accepted: send ") as caught:
            decode_image(FILES[name], replace(DISPLAY, formats=others))
        assert caught.value.status == 415
    with pytest.raises(UnsupportedMediaError, match=r"send PNG$"):
        decode_image(FILES["gif"], replace(DISPLAY, formats=("png",)))
    with pytest.raises(UnsupportedMediaError, match=r"send PNG or JPEG$"):
        decode_image(FILES["gif"], replace(DISPLAY, formats=("png", "jpeg")))


@pytest.mark.parametrize(
    ("error", "status", "says"),
    [
        (OSError("cannot read <_io.BytesIO object at 0x7f00aa>"), 400, "cannot read ..."),
        (ValueError("bad /srv/models/secret.png header"), 400, "bad ... header"),
        (SyntaxError("broken\0\n"), 400, "broken"),
        (EOFError(), 400, "EOFError"),
        (_wrapped(IndexError("index out of range")), 400, "header is damaged or cut"),
        (KeyError(320), 400, "structure is damaged (KeyError)"),
        (IndexError("x"), 400, "structure is damaged (IndexError)"),
        (struct.error("unpack requires a buffer"), 400, "structure is damaged"),
        (zlib.error("Error -3"), 400, "structure is damaged"),
        (ZeroDivisionError(), 400, "ZeroDivisionError"),
        (RecursionError(), 400, "RecursionError"),
        (OverflowError("x"), 400, "OverflowError"),
        (MemoryError(), 413, "memory"),
        (Image.DecompressionBombError("x"), 413, "pixels"),
    ],
)
def test_whatever_a_decoder_raises(
    monkeypatch: pytest.MonkeyPatch, error: Exception, status: int, says: str
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(decode, "_open", fail)
    with pytest.raises(MediaError) as caught:
        decode_image(FILES["png"], DISPLAY)
    assert caught.value.status == status
    assert says in caught.value.message
    assert "0x" not in caught.value.message
    assert "srv" not in caught.value.message


def test_what_headers_declare() -> None:
    assert read_header(FILES["webp"], "webp") == Declared((40, 30))
    assert read_header(FILES["lossless webp"], "webp") == Declared((40, 30))
    exif = encoded(picture(), "WEBP", exif=b"Exif\0\0MM\0*\0\0\0\x08\0\0\0\0\0\0")
    assert exif[12:16] == b"VP8X"
    assert read_header(exif, "webp") == Declared((40, 30))
    assert read_header(FILES["animated gif"], "gif") == Declared((40, 30))
    assert read_header(_gif((3, 9), (2, 1, 4, 4), table="local"), "gif") == Declared((6, 9))
    assert read_header(_gif((3, 9), (2, 1, 4, 4), table=""), "gif") == Declared((6, 9), False)
    assert read_header(FILES["png"], "png") is None


@given(st.binary(max_size=200), st.sampled_from(["webp", "gif"]))
def test_any_header_is_read(data: bytes, image_format: str) -> None:
    for head in (b"", b"GIF89a", b"RIFF\0\0\0\0WEBPVP8X", b"RIFF\0\0\0\0WEBPVP8L"):
        read_header(head + data, image_format)


@given(st.binary(max_size=400))
def test_any_bytes_give_a_media_error(data: bytes) -> None:
    for head in (b"", PNG_HEAD, b"\xff\xd8\xff", b"GIF89a", b"II*\0", b"RIFF\0\0\0\0WEBPVP8 "):
        with contextlib.suppress(MediaError):
            decode_image(head + data, replace(DISPLAY, max_pixels=1_000_000))


@pytest.mark.parametrize("name", FILES)
@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=60)
@given(data=st.data())
def test_mutated_files_give_pixels_or_a_media_error(name: str, data: st.DataObject) -> None:
    file = bytearray(FILES[name])
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(file) - 1))
        match data.draw(st.sampled_from(["flip", "drop", "grow"])):
            case "flip":
                file[at] = data.draw(st.integers(0, 255))
            case "drop":
                del file[at : at + data.draw(st.integers(1, 4))]
            case _:
                file[at:at] = data.draw(st.binary(min_size=1, max_size=4))
        if not file:
            break
    rules = replace(DISPLAY, max_pixels=1_000_000)
    for chosen in (rules, replace(rules, policy="checkpoint")):
        with contextlib.suppress(MediaError):
            pixels = decode_image(bytes(file), chosen).pixels
            assert pixels.shape[2] == 3
            assert pixels.flags.c_contiguous
