"""The images that are verified: a generated set, the same on every host, or a folder's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from kimi_serve.preprocess.images.sniff import sniff
from kimi_serve.schemas.errors import ConfigError
from kimi_serve.schemas.worker import ImageRules

from .results import NotMeasured

_ORIENTATION = 0x0112
_MOST_FILES = 500
_MOST_NAMES = 20


@dataclass(frozen=True, slots=True)
class Sample:
    """One encoded image and a name for it."""

    name: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Images:
    """What is verified, what workers are loaded with, and what was left out."""

    samples: Sequence[Sample]
    load_samples: Sequence[Sample]
    left_out: Sequence[NotMeasured] = ()


def choose(folder: Path | None, rules: ImageRules) -> Images:
    """Give the images of a folder, or generated ones that `rules` accept; ConfigError for none."""
    if folder is not None:
        samples, left_out = from_folder(folder, rules.formats)
        return Images(samples, samples, left_out)
    made = generated(rules.formats)
    samples = [sample for sample in made if _is_allowed(sample, rules)]
    limits = f"image.max_pixels {rules.max_pixels}, media.max_bytes {rules.max_bytes}"
    if not samples:
        raise ConfigError(
            "no generated image is one that the settings accept: image.formats "
            f"{', '.join(rules.formats)}, {limits}",
            hint="name a folder with images that they accept: --images FOLDER",
        )
    load = [sample for sample in load_samples(rules.formats) if _is_allowed(sample, rules)]
    left_out = [
        NotMeasured(f"images in {name}", "Pillow cannot write them here: see --images")
        for name in unwritable(rules.formats)
    ]
    larger = [sample.name for sample in made if sample not in samples]
    if larger:
        left_out.append(NotMeasured(_names(larger), f"larger than allowed: {limits}"))
    return Images(samples, load or samples, left_out)


def _is_allowed(sample: Sample, rules: ImageRules) -> bool:
    with Image.open(BytesIO(sample.data)) as image:
        pixels = image.width * image.height
    return pixels <= rules.max_pixels and len(sample.data) <= rules.max_bytes


def generated(
    formats: Sequence[str], is_wanted: Callable[[str], bool] = lambda _name: True
) -> list[Sample]:
    """Make sizes, formats, modes, orientations; only what `formats` accept and what is wanted."""
    made = set(formats) - set(unwritable(formats))
    return [
        Sample(name, make())
        for name, make in _recipes()
        if name.rpartition(".")[2].replace("jpg", "jpeg") in made and is_wanted(name)
    ]


def unwritable(formats: Sequence[str]) -> tuple[str, ...]:
    """Give the formats that this build of Pillow cannot write."""
    Image.init()
    return tuple(name for name in formats if name.upper() not in Image.SAVE)


def load_samples(formats: Sequence[str]) -> list[Sample]:
    """Make what workers are loaded with: JPEGs of a phone and of the web."""
    if "jpeg" not in formats:
        return generated(formats, lambda name: "x" in name and "noise" not in name)
    return [
        Sample(f"photo_{width}x{height}.jpg", _photo_jpeg(width, height))
        for width, height in ((640, 480), (1920, 1080), (4000, 3000))
    ]


def from_folder(folder: Path, formats: Sequence[str]) -> tuple[list[Sample], list[NotMeasured]]:
    """Read the images of a folder, in order; gives beside them what is left out, and why."""
    try:
        files = sorted(path for path in folder.iterdir() if path.is_file())
    except OSError as error:
        raise ConfigError(f"--images {folder}: {error.strerror}") from None
    samples: list[Sample] = []
    left_out: dict[str, list[str]] = {}
    for path in files:
        why = f"the first {_MOST_FILES} images of a folder are taken"
        if len(samples) < _MOST_FILES:
            try:
                data = path.read_bytes()
            except OSError as error:
                why = f"it cannot be read: {error.strerror}"
            else:
                if sniff(data).format in formats:
                    samples.append(Sample(path.name, data))
                    continue
                why = f"no image in one of image.formats ({', '.join(formats)})"
        left_out.setdefault(why, []).append(path.name)
    if not samples:
        raise ConfigError(
            f"--images {folder}: there is no image of an accepted format in it",
            hint=f"image.formats are {', '.join(formats)}",
        )
    return samples, [NotMeasured(_names(names), why) for why, names in left_out.items()]


def _names(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def _recipes() -> Iterator[tuple[str, Callable[[], bytes]]]:
    for size in ((1, 1), (13, 13), (28, 28), (57, 1), (640, 480), (1920, 1080)):
        yield f"photo_{size[0]}x{size[1]}.png", partial(_photo_png, *size)
    for size in ((3000, 2400), (1440, 3120), (9000, 57), (57, 9000)):
        yield f"noise_{size[0]}x{size[1]}.png", partial(_noise_png, *size)
    for name, subsampling in (("444", 0), ("422", 1), ("420", 2)):
        yield f"jpeg_{name}_1000x750.jpg", partial(_photo_jpeg, 1000, 750, "RGB", subsampling)
    yield "jpeg_progressive_1000x750.jpg", partial(_photo_jpeg, 1000, 750, progressive=True)
    yield "jpeg_444_4000x3000.jpg", partial(_photo_jpeg, 4000, 3000, "RGB", 0)
    yield "jpeg_grey_801x601.jpg", partial(_photo_jpeg, 801, 601, "L")
    yield "jpeg_cmyk_320x240.jpg", partial(_photo_jpeg, 320, 240, "CMYK", 0)
    yield "jpeg_text_420_400x300.jpg", partial(_coloured_lines, 400, 300)
    for value in range(2, 9):
        yield f"jpeg_orientation_{value}.jpg", partial(_turned, value)
    for mode in ("RGBA", "LA", "L", "P", "1"):
        yield f"png_{mode}_301x201.png", partial(_transparent_png, 301, 201, mode)
    yield "png_16bit_grey_300x200.png", partial(_deep_grey, 300, 200)
    yield "webp_500x400.webp", partial(_webp, 500, 400)
    yield "webp_alpha_200x200.webp", partial(_transparent_webp, 200, 200)
    yield "gif_256x192.gif", partial(_gif, 256, 192)
    for mode in ("RGB", "L", "P"):
        yield f"bmp_{mode}_400x300.bmp", partial(_written, 400, 300, "BMP", mode)
    for mode in ("RGB", "L", "CMYK"):
        yield f"tiff_{mode}_400x300.tiff", partial(_written, 400, 300, "TIFF", mode)
    yield "avif_500x400.avif", partial(_written, 500, 400, "AVIF", "RGB")


def _photo_png(width: int, height: int) -> bytes:
    return _png(_photo(width, height))


def _noise_png(width: int, height: int) -> bytes:
    """The hardest case for a resize: every value is random."""
    values = _random(width * 31 + height).integers(0, 256, (height, width, 3), np.uint8)
    return _png(Image.fromarray(values))


def _photo_jpeg(
    width: int, height: int, mode: str = "RGB", subsampling: int = 2, *, progressive: bool = False
) -> bytes:
    image = _photo(width, height).convert(mode)
    return _jpeg(image, subsampling=subsampling, progressive=progressive)


def _webp(width: int, height: int) -> bytes:
    return _saved(_photo(width, height), "WEBP", quality=80)


def _transparent_webp(width: int, height: int) -> bytes:
    return _saved(_transparent(width, height), "WEBP", lossless=True)


def _transparent_png(width: int, height: int, mode: str) -> bytes:
    return _png(_transparent(width, height).convert(mode))


def _gif(width: int, height: int) -> bytes:
    return _written(width, height, "GIF", "P")


def _written(width: int, height: int, image_format: str, mode: str) -> bytes:
    return _saved(_photo(width, height).convert(mode), image_format)


def _photo(width: int, height: int) -> Image.Image:
    """Soft shapes with a little noise, as cameras make them."""
    x = np.linspace(0, 1, width, dtype=np.float32)
    y = np.linspace(0, 1, height, dtype=np.float32)[:, None]
    waves = [np.sin(9 * x + 4 * y + k) * np.cos(7 * y - 3 * x * k) for k in range(3)]
    noise = _random(width * 7 + height).normal(0, 4, (height, width, 3))
    values = 127 + 110 * np.stack(waves, axis=2) + noise
    return Image.fromarray(values.clip(0, 255).astype(np.uint8))


def _coloured_lines(width: int, height: int) -> bytes:
    """One-pixel columns of red and blue: what chroma subsampling harms most."""
    pixels = np.full((height, width, 3), 255, np.uint8)
    pixels[:, ::4] = (220, 0, 0)
    pixels[:, 2::4] = (0, 0, 220)
    return _jpeg(Image.fromarray(pixels), subsampling=2)


def _transparent(width: int, height: int) -> Image.Image:
    image = _photo(width, height).convert("RGBA")
    alpha = np.tile(np.linspace(0, 255, width).astype(np.uint8), (height, 1))
    image.putalpha(Image.fromarray(alpha))
    return image


def _deep_grey(width: int, height: int) -> bytes:
    values = np.linspace(0, 65535, width * height).astype(np.uint16)
    return _png(Image.fromarray(values.reshape(height, width)))


def _turned(value: int) -> bytes:
    image = _photo(420, 280)
    exif = image.getexif()
    exif[_ORIENTATION] = value
    return _jpeg(image, subsampling=0, exif=exif)


def _random(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


def _png(image: Image.Image) -> bytes:
    return _saved(image, "PNG", compress_level=1)


def _jpeg(image: Image.Image, **options: Any) -> bytes:
    return _saved(image, "JPEG", quality=90, **options)


def _saved(image: Image.Image, image_format: str, **options: Any) -> bytes:
    out = BytesIO()
    image.save(out, image_format, **options)
    return out.getvalue()
