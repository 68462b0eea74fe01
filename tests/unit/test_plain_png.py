"""Plain PNGs have the bits of Pillow, or are left to it: nothing that it refuses is shown."""

from __future__ import annotations

import contextlib
import os
import random
import struct
import tracemalloc
import zlib
from dataclasses import replace
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from image_samples import DISPLAY, KIMI, encoded, picture, png_chunk, raw_png
from native_levels import needs_kernel
from numpy.typing import NDArray
from PIL import Image, PngImagePlugin
from zlib_ng import zlib_ng

from kimi_serve.preprocess.images import png
from kimi_serve.preprocess.images.decode import PixelPool, decode_image
from kimi_serve.preprocess.images.image_processor import ImageProcessor
from kimi_serve.preprocess.native import kernel
from kimi_serve.schemas.errors import MediaError, MediaTooLargeError
from kimi_serve.schemas.vocabulary import ImageKernel
from kimi_serve.schemas.worker import ImageRules

ROUNDS = int(os.environ.get("PNG_ROUNDS", "400"))
CHECKPOINT = replace(DISPLAY, policy="checkpoint")
SIZES = [(1, 1), (1, 9), (9, 1), (40, 30), (700, 400)]
Outcome = tuple[bytes, tuple[int, int], bool] | str

# Through Any: its stubs are incomplete.
zlib_of_pngs: Any = zlib_ng
# Through Any: it is called wrongly on purpose.
unfilter: Any = None if kernel.missing else kernel.unfilter


def filtered_png(
    size: tuple[int, int], colour: int, rng: random.Random, *, filters: str = "01234", **change: Any
) -> bytes:
    """Give a PNG of random bytes under random filters, in IDAT chunks of random length."""
    width, height = size
    stride = width * {2: 3, 6: 4}[colour]
    rows = b"".join(
        int(rng.choice(filters)).to_bytes() + rng.randbytes(stride) for _ in range(height)
    )
    stream = zlib.compress(rows + change.get("more", b""), rng.randrange(10))
    stream = stream[: max(0, len(stream) - change.get("cut", 0))] + change.get("behind", b"")
    cuts = sorted(rng.randrange(len(stream) + 1) for _ in range(rng.randrange(4)))
    bodies = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    header = struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        png_chunk(kind, body)
        for kind, body in [(b"IHDR", header), *((b"IDAT", body) for body in bodies), (b"IEND", b"")]
    )


def outcome(data: bytes, rules: ImageRules, undo: png.Unfilter | None = unfilter) -> Outcome:
    try:
        decoded = decode_image(data, rules, None, undo)
    except MediaError as error:
        return f"{type(error).__name__}: {error}"
    return decoded.pixels.tobytes(), decoded.size, decoded.orientation_applied


def by_pillow(data: bytes, rules: ImageRules) -> Outcome:
    return outcome(data, rules, None)


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What `plain_pixels` has given, call by call."""
    given: list[object] = []
    original = png.plain_pixels

    def spy(*arguments: Any, **options: Any) -> object:
        given.append(original(*arguments, **options))
        return given[-1]

    monkeypatch.setattr("kimi_serve.preprocess.images.decode.plain_pixels", spy)
    return given


def is_plain(data: bytes, rules: ImageRules = CHECKPOINT) -> bool:
    return isinstance(decode_image(data, rules, None, unfilter).picture, np.ndarray)


@needs_kernel
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("colour", [2, 6])
def test_every_filter_has_the_bits_of_pillow(size: tuple[int, int], colour: int) -> None:
    rng = random.Random(1)
    for filters in ("0", "1", "2", "3", "4", "01234"):
        data = filtered_png(size, colour, rng, filters=filters)
        assert is_plain(data)
        assert outcome(data, CHECKPOINT) == by_pillow(data, CHECKPOINT)
        assert outcome(data, DISPLAY) == by_pillow(data, DISPLAY)


@needs_kernel
def test_alpha_counts_for_viewers_only() -> None:
    whole = picture(500, 700).convert("RGBA")
    holed = whole.copy()
    holed.putpixel((499, 699), (1, 2, 3, 254))
    for image, plain in ((whole, True), (holed, False)):
        data = encoded(image, "PNG")
        assert is_plain(data, CHECKPOINT)
        assert is_plain(data, DISPLAY) is plain
        assert outcome(data, DISPLAY) == by_pillow(data, DISPLAY)
        assert outcome(data, CHECKPOINT) == by_pillow(data, CHECKPOINT)


def _unusual() -> dict[str, bytes]:
    image = picture()
    files = {mode: encoded(image.convert(mode), "PNG") for mode in ("1", "L", "LA", "P", "I;16")}
    files["deep"] = raw_png(3, 2, 16, 2, bytes(range(36)))
    files["colour key"] = raw_png(3, 2, 8, 2, bytes(range(18)), (b"tRNS", b"\0\0\0\1\0\2"))
    files["animated"] = encoded(
        image, "PNG", save_all=True, append_images=[image.rotate(180)], duration=9
    )
    files["no end"] = encoded(image, "PNG")[:-12]
    plain = encoded(image, "PNG")
    header = plain[16:28]
    files["text behind"] = plain[:-12] + png_chunk(b"tEXt", b"words\0behind") + plain[-12:]
    files["broken text behind"] = plain[:-12] + b"\0\0\1\0tEXt"
    files["interlaced"] = plain.replace(plain[8:33], png_chunk(b"IHDR", header + b"\x01"))
    return files


UNUSUAL = _unusual()


@needs_kernel
@pytest.mark.parametrize("name", UNUSUAL)
def test_what_is_unusual_is_left_to_pillow(name: str) -> None:
    with Image.open(BytesIO(UNUSUAL[name])) as image:
        found = png.plain_pixels(UNUSUAL[name], image, _take, unfilter, must_be_opaque=False)
    assert found is None
    for rules in (CHECKPOINT, DISPLAY):
        assert outcome(UNUSUAL[name], rules) == by_pillow(UNUSUAL[name], rules)


def _fail(*arguments: object, **options: object) -> None:
    pytest.fail("decoded")


def _take(nbytes: int) -> NDArray[np.uint8]:
    return np.empty(nbytes, np.uint8)


@needs_kernel
@pytest.mark.parametrize("value", range(1, 9))
@pytest.mark.parametrize("behind", [False, True])
def test_orientation(value: int, behind: bool) -> None:
    exif = Image.Exif()
    exif[0x0112] = value
    data = encoded(picture(), "PNG")
    chunk = png_chunk(b"eXIf", exif.tobytes()[6:])
    at = len(data) - 12 if behind else 33
    data = data[:at] + chunk + data[at:]
    found = outcome(data, DISPLAY)
    assert found == by_pillow(data, DISPLAY)
    assert found[2] is (value != 1)


@needs_kernel
def test_orientation_does_not_decode_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PngImagePlugin.PngImageFile, "load_prepare", _fail)
    assert decode_image(encoded(picture(), "PNG"), DISPLAY, None, unfilter).size == (40, 30)


@needs_kernel
@pytest.mark.parametrize(
    "change",
    [
        {"filters": "5"},
        {"more": b"\0"},
        {"more": bytes(10**6)},
        {"cut": 1},
        {"cut": 4},
        {"cut": 10**6},
        {"cut": 4, "behind": bytes(4)},
        {"behind": b"\0"},
        {"behind": zlib.compress(bytes(500))},
    ],
)
@pytest.mark.parametrize("colour", [2, 6])
def test_streams_that_are_not_exactly_the_picture_are_left_to_pillow(
    colour: int,
    change: dict[str, Any],
    found: list[object],
) -> None:
    for size in SIZES:
        data = filtered_png(size, colour, random.Random(2), **change)
        for rules in (CHECKPOINT, DISPLAY):
            assert outcome(data, rules) == by_pillow(data, rules)
    assert found
    assert not any(isinstance(pixels, np.ndarray) for pixels in found)


@needs_kernel
def test_damage_never_shows_what_pillow_would_not() -> None:
    seed = int(os.environ.get("PNG_SEED", "3"))
    rng = random.Random(seed)
    exif = Image.Exif()
    exif[0x0112] = 6
    files = [
        filtered_png((17, 13), 2, rng),
        filtered_png((17, 13), 6, rng),
        encoded(picture(), "PNG", exif=exif, icc_profile=b"profile", dpi=(72, 72)),
        encoded(picture().convert("RGBA"), "PNG"),
        *UNUSUAL.values(),
    ]
    for number in range(ROUNDS):
        data = bytearray(rng.choice(files))
        for _ in range(rng.choice((1, 1, 1, 2, 5))):
            damage(data, rng)
        whole = bytes(data) if rng.random() < 0.5 else with_checksums(bytes(data))
        for rules in (CHECKPOINT, DISPLAY):
            assert outcome(whole, rules) == by_pillow(whole, rules), (seed, number, whole.hex())


def damage(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(8, max(9, len(data)))
    match rng.randrange(6):
        case 0:
            del data[at:]
        case 1:
            data[at : at + 1] = rng.randbytes(1)
        case 2:
            del data[at : at + rng.randrange(1, 20)]
        case 3:
            data[at:at] = rng.randbytes(rng.randrange(1, 20))
        case 4:  # a length, a name or a checksum
            found = data.find(rng.choice((b"IHDR", b"IDAT", b"IEND", b"eXIf", b"tRNS", b"PLTE")))
            place = max(0, found + rng.randrange(-4, 8))
            data[place : place + 1] = rng.randbytes(1)
        case _:  # a chunk anywhere
            kind = rng.choice((b"IDAT", b"IEND", b"tRNS", b"acTL", b"fcTL", b"IHDR", b"teSt"))
            body = rng.choice((b"", rng.randbytes(rng.randrange(30)), bytes(data[16:29])))
            place = rng.choice((33, data.find(b"IDAT") - 4, len(data) - 12, len(data), at))
            data[max(8, place) : max(8, place)] = png_chunk(kind, body)


def with_checksums(data: bytes) -> bytes:
    """Make the checksum of every chunk right, and that of a stream in one chunk."""
    parts, at = [data[:8]], 8
    while at + 12 <= len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        if at + 12 + length > len(data):
            break
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        parts.append(png_chunk(kind, with_adler(body) if kind == b"IDAT" else body))
        at += 12 + length
    return b"".join(parts) + data[at:]


def with_adler(stream: bytes) -> bytes:
    """Make the checksum at the end of a stream that ends right."""
    inflate = zlib.decompressobj(-15)
    try:
        rows = inflate.decompress(stream[2:], 10**6)
    except zlib.error:
        return stream
    if not inflate.eof:
        return stream
    tail = inflate.unused_data
    return stream[: len(stream) - len(tail)] + struct.pack(">I", zlib.adler32(rows)) + tail[4:]


@needs_kernel
def test_pixels_lie_in_the_pool() -> None:
    pool = PixelPool()
    data = encoded(picture(), "PNG")
    first = decode_image(data, CHECKPOINT, pool, unfilter).pixels
    assert np.shares_memory(first, decode_image(data, CHECKPOINT, pool, unfilter).pixels)
    assert np.shares_memory(first, pool.take(1))


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_what_is_left_to_pillow_holds_no_second_picture(kind: str) -> None:
    pool = PixelPool()
    if kind == "PNG":
        image = picture(1000, 1000).convert("RGBA")
        image.putpixel((999, 999), (1, 2, 3, 0))
        data = encoded(image, "PNG")
    else:
        data = encoded(picture(1000, 1000), "JPEG")
        data = data[:-1000] + b"\xff\xd9"
    tracemalloc.start()
    try:
        with contextlib.suppress(MediaError):
            decode_image(data, replace(DISPLAY, policy="checkpoint"), pool, unfilter)
        with contextlib.suppress(MediaError):
            decode_image(data, DISPLAY, pool, unfilter)
        left, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak > 3_000_000
    assert left < 300_000


def test_the_cap_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kimi_serve.preprocess.images.decode.plain_pixels", _fail)
    rules = replace(CHECKPOINT, max_pixels=1199)
    with pytest.raises(MediaTooLargeError):
        decode_image(encoded(picture(), "PNG"), rules, None, unfilter)


@needs_kernel
def test_a_bomb_is_inflated_to_its_pixels_and_no_further(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []
    original = zlib_of_pngs.decompressobj

    class Counting:
        def __init__(self) -> None:
            self._inner: Any = original()

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

        def decompress(self, data: bytes, most: int) -> bytes:
            asked.append(most)
            return self._inner.decompress(data, most)

    monkeypatch.setattr(zlib_ng, "decompressobj", Counting)
    decode_image(
        filtered_png((3, 2), 2, random.Random(1), more=bytes(10**7)), CHECKPOINT, None, unfilter
    )
    assert sum(asked) == 2 * 10 + 1


@needs_kernel
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({0: bytearray(19)}, "the rows need 20 bytes; there are 19"),
        ({1: 0}, "width is 0"),
        ({1: 2**20 + 1}, "width is 1048577"),
        ({2: 2}, "channels is 2"),
        ({2: 5}, "channels is 5"),
        ({3: 0}, "count is 0"),
        ({3: -1}, "count is -1"),
        ({4: bytearray(8)}, "the output buffer needs 9 bytes"),
        ({0: bytearray(10) + b"\5" + bytes(9)}, "unknown filter"),
    ],
)
def test_what_does_not_fit_is_refused(change: dict[int, Any], words: str) -> None:
    arguments: dict[int, Any] = {0: bytearray(20), 1: 3, 2: 3, 3: 1, 4: bytearray(9)} | change
    with pytest.raises(ValueError, match=words):
        unfilter(*arguments.values())


@needs_kernel
@pytest.mark.parametrize("at", [0, 4])
def test_memory_that_cannot_be_written_is_refused(at: int) -> None:
    arguments: list[Any] = [bytearray(20), 3, 3, 1, bytearray(9)]
    arguments[at] = bytes(arguments[at])
    with pytest.raises((BufferError, TypeError)):
        unfilter(*arguments)


@needs_kernel
@pytest.mark.parametrize(("which", "is_ours"), [("native", True), ("pure", False)])
def test_the_pure_path_is_all_of_pillow(
    which: ImageKernel, is_ours: bool, found: list[object]
) -> None:
    _, patches = ImageProcessor(KIMI, DISPLAY, which).process_array(encoded(picture(), "PNG"))
    assert bool(found) is is_ours
    by_pillow_alone = ImageProcessor(KIMI, DISPLAY, "pure").process_array(encoded(picture(), "PNG"))
    assert patches.tobytes() == by_pillow_alone[1].tobytes()
