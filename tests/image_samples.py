"""Rules, settings and files that the tests of images share."""

from __future__ import annotations

import json
import struct
import zlib
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image

from kimi_serve.schemas.worker import ImageRules, ResizeConfig, WorkerSpec

DATA = Path(__file__).parent / "data"
ALL_FORMATS = ("jpeg", "png", "webp", "gif", "bmp", "tiff", "avif")
DEFAULT_FORMATS = ("jpeg", "png", "webp", "gif")

# Kimi-K2.5's own numbers.
KIMI = ResizeConfig(
    in_patch_limit=16384,
    patch_limit_on_one_side=512,
    patch_size=14,
    merge_kernel_size=2,
    image_mean=(0.5, 0.5, 0.5),
    image_std=(0.5, 0.5, 0.5),
)
DISPLAY = ImageRules(
    policy="display",
    background=(255, 255, 255),
    dtype="float32",
    max_pixels=50_000_000,
    max_bytes=64 * 2**20,
    formats=ALL_FORMATS,
)
SPEC = WorkerSpec(
    index=0, decode_device="cpu", preprocess_device="cpu", resize=KIMI, rules=DISPLAY,
    tokenizer=None, slots=3, slot_bytes=1, memory_bytes=0, env=(), log_level="info",
    log_format="text",
)  # fmt: skip


def load_json(name: str) -> Any:
    return json.loads((DATA / name).read_text("utf-8"))


def encoded(image: Image.Image, image_format: str, **options: Any) -> bytes:
    """Give the file that Pillow writes."""
    out = BytesIO()
    image.save(out, image_format, **options)
    return out.getvalue()


def picture(width: int = 40, height: int = 30) -> Image.Image:
    """Give an RGB picture that no turn or mirror maps onto itself."""
    image = Image.new("RGB", (width, height), (200, 30, 30))
    image.paste((30, 200, 30), (0, 0, width // 2, height // 3))
    image.paste((30, 30, 200), (width // 2, height // 2, width, height))
    image.paste((240, 240, 90), (0, height - 4, 5, height))
    return image


def png_chunk(kind: bytes, body: bytes) -> bytes:
    checksum = zlib.crc32(kind + body)
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", checksum)


def raw_png(
    width: int, height: int, depth: int, colour: int, rows: bytes, *chunks: tuple[bytes, bytes]
) -> bytes:
    """Give a PNG of any depth and colour type; `rows` holds packed samples without filter bytes."""
    stride = len(rows) // height
    lines = b"".join(b"\0" + rows[at : at + stride] for at in range(0, len(rows), stride))
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    parts = [(b"IHDR", header), *chunks, (b"IDAT", zlib.compress(lines)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(png_chunk(kind, body) for kind, body in parts)
