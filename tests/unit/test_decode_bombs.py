"""Small files that ask for much memory: refused by arithmetic on what they declare."""

from __future__ import annotations

import struct
import tracemalloc
import zlib
from dataclasses import replace
from io import BytesIO

import pytest
from image_samples import DATA, DISPLAY, encoded, picture
from PIL import Image, ImageFile

from kimi_serve.preprocess.images.decode import decode_image
from kimi_serve.schemas.errors import MediaError, MediaTooLargeError

CHECKPOINT = replace(DISPLAY, policy="checkpoint")


def tiled_tiff(side: int, tile: tuple[int, int], compression: int, data: bytes) -> bytes:
    """Give a grey TIFF of one tile, which may be larger than the picture."""
    shorts = {258: 8, 259: compression, 262: 1, 277: 1}
    longs = {256: side, 257: side, 322: tile[0], 323: tile[1], 324: 0, 325: len(data)}
    longs[324] = 8 + 2 + 12 * (len(shorts) + len(longs)) + 4
    entries = [(tag, 3, value) for tag, value in shorts.items()]
    entries += [(tag, 4, value) for tag, value in longs.items()]
    table = b"".join(struct.pack("<HHII", tag, kind, 1, value) for tag, kind, value in
                     sorted(entries))  # fmt: skip
    head = b"II*\0" + struct.pack("<IH", 8, len(entries))
    return head + table + b"\0\0\0\0" + data


@pytest.mark.parametrize("compression", [1, 5, 8, 50000], ids=["raw", "lzw", "deflate", "zstd"])
@pytest.mark.parametrize("tile", [(65520, 30000), (2**31, 2**31), (50_000_016, 1)])
def test_a_tile_larger_than_any_picture(tile: tuple[int, int], compression: int) -> None:
    data = tiled_tiff(16, tile, compression, b"\x80\0")
    for rules in (DISPLAY, CHECKPOINT):
        with pytest.raises(MediaTooLargeError, match=r"the TIFF has tiles of \d+ x \d+ pixels"):
            decode_image(data, rules)


def test_usual_tiles_are_decoded_whatever_the_cap() -> None:
    data = tiled_tiff(16, (256, 256), 8, zlib.compress(bytes([200]) * 256 * 256))
    for rules in (DISPLAY, replace(DISPLAY, max_pixels=256)):
        assert decode_image(data, rules).pixels.shape == (16, 16, 3)


@pytest.mark.parametrize(
    "name", ["bomb_144mp.png", "bomb_400mp.png", "bomb_ihdr_lie.png", "ztxt_bomb.png"]
)
def test_the_collected_bombs_cost_nothing(name: str) -> None:
    data = (DATA / "images" / name).read_bytes()
    tracemalloc.start()
    with pytest.raises(MediaError):
        decode_image(data, DISPLAY)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * 2**20


@pytest.mark.parametrize("image_format", ["GIF", "PNG", "WEBP", "TIFF", "AVIF"])
def test_only_the_first_frame_is_decoded(
    monkeypatch: pytest.MonkeyPatch, image_format: str
) -> None:
    later = [picture().rotate(angle) for angle in (90, 180)]
    data = encoded(picture(), image_format, save_all=True, append_images=later)
    with Image.open(BytesIO(data)) as opened:
        kind = type(opened)
    original = kind.seek

    def seek(self: ImageFile.ImageFile, frame: int) -> None:
        assert frame == 0, "a later frame was asked for"
        original(self, frame)

    monkeypatch.setattr(kind, "seek", seek)
    for rules in (DISPLAY, CHECKPOINT):
        assert decode_image(data, rules).pixels.shape == (30, 40, 3)


def test_a_failed_decode_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[int] = []
    original = ImageFile.ImageFile.load

    def load(self: ImageFile.ImageFile) -> object:
        loads.append(1)
        return original(self)

    monkeypatch.setattr(ImageFile.ImageFile, "load", load)
    for name in ("bad_zlib.png", "truncated.png", "truncated.webp", "broken_second_idat.png"):
        for rules in (DISPLAY, CHECKPOINT):
            loads.clear()
            with pytest.raises(MediaError):
                decode_image((DATA / "images" / name).read_bytes(), rules)
            assert len(loads) <= 1, name
