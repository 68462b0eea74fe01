"""Turns a decoded Pillow image into RGB pixels: as a person sees it, or as the checkpoint does."""

from __future__ import annotations

import re
from typing import cast

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, TiffImagePlugin

from kimi_serve.schemas.errors import MediaError

from .picture import Picture

Pixels = NDArray[np.uint8]
Colour = tuple[int, int, int]

_XMP_ORIENTATION = re.compile(rb"tiff:Orientation\s*(?:=\s*[\"']|>)\s*([1-8])\s*[\"'<]")
# Factors from the samples of a shallow PNG to the bytes that Pillow scales them to.
_SHALLOW_GREY = {2: 85, 4: 17}


def checkpoint_pixels(image: Image.Image) -> Image.Image:
    """Give an RGB image exactly as the checkpoint's own processor converts."""
    image.load()
    return image if image.mode == "RGB" else image.convert("RGB")


def display_pixels(image: Image.Image, background: Colour) -> Picture:
    """Give RGB as a viewer shows it, not yet turned upright.

    Transparency is composited on `background`; 16-bit grey keeps its high byte.
    """
    if image.mode.startswith("I;16"):
        return _deep_grey(image, background)
    if image.mode in ("I", "F"):
        kind = "32-bit integer" if image.mode == "I" else "floating point"
        raise MediaError(
            f"images with {kind} samples are not supported: their range is not defined; "
            "send 8-bit or 16-bit samples"
        )
    key = _colour_key(image)
    if key is not None:
        pixels = np.array(image.convert("RGB"))
        pixels[(pixels == np.array(key)).all(axis=2)] = background
        return pixels
    if not image.has_transparency_data:
        return checkpoint_pixels(image)
    if image.mode == "La":
        image = image.convert("LA")
    rgba = image.convert("RGBA")
    canvas = Image.new("RGB", rgba.size, background)
    canvas.paste(rgba, mask=rgba.getchannel("A"))
    return canvas


def scale_colour_key(image: Image.Image, bit_depth: int) -> None:
    """Bring the transparent colour of a PNG to the depth of the decoded samples.

    Pillow scales 2 and 4-bit grey up and 16-bit colour down, but leaves the tRNS value alone.
    """
    key = _colour_key(image)
    if key is None:
        return
    if image.mode == "L" and bit_depth in _SHALLOW_GREY:
        image.info["transparency"] = key[0] * _SHALLOW_GREY[bit_depth]
    elif image.mode == "RGB" and bit_depth == 16:
        image.info["transparency"] = (key[0] >> 8, key[1] >> 8, key[2] >> 8)


def _colour_key(image: Image.Image) -> Colour | None:
    """Give the one transparent colour of a grey or RGB image."""
    key = image.info.get("transparency")
    if image.mode in ("1", "L") and isinstance(key, int):
        return key, key, key
    if image.mode == "RGB" and isinstance(key, tuple):
        red, green, blue = cast(Colour, key)
        return red, green, blue
    return None


def orientation(image: Image.Image) -> int:
    """Read the orientation, 1 to 8: EXIF first, then XMP, then upright.

    The image is loaded, or everything that its file has besides pixels is known.
    """
    try:
        # Not the method of PNG files, which loads the pixels to look behind them.
        value = Image.Image.getexif(image).get(ExifTags.Base.Orientation)
    except Exception:  # noqa: BLE001 - damaged metadata fails in many ways and is never an error
        value = None
    if isinstance(value, int) and 1 <= value <= 8:
        return value
    for key in ("xmp", "XML:com.adobe.xmp"):
        packet = image.info.get(key)
        if isinstance(packet, str):
            packet = packet.encode("utf-8", "replace")
        found = _XMP_ORIENTATION.search(packet) if isinstance(packet, bytes) else None
        if found is not None:
            return int(found[1])
    return 1


def upright(pixels: Pixels, value: int) -> Pixels:
    """Undo EXIF orientation `value` on [height, width, 3]; 5 to 8 exchange the sides."""
    if value == 1:
        return pixels
    # Three bytes moved as one element: numpy copies whole pixels, not samples.
    grid = np.ascontiguousarray(pixels).view("V3")[..., 0]
    if value >= 5:
        grid = grid.T
    turned = {2: grid[:, ::-1], 3: grid[::-1, ::-1], 4: grid[::-1], 5: grid,
              6: grid[:, ::-1], 7: grid[::-1, ::-1], 8: grid[::-1]}[value]  # fmt: skip
    height, width = turned.shape
    return np.ascontiguousarray(turned).view(np.uint8).reshape(height, width, 3)


def is_white_zero(image: Image.Image) -> bool:
    """Say whether a TIFF counts its grey downwards; Pillow turns that round in 8 bits only."""
    if not isinstance(image, TiffImagePlugin.TiffImageFile):
        return False
    return image.tag_v2.get(ExifTags.Base.PhotometricInterpretation) == 0


def _deep_grey(image: Image.Image, background: Colour) -> Pixels:
    samples = np.asarray(image)
    if is_white_zero(image):
        samples = ~samples
    grey = (samples >> 8).astype(np.uint8)
    pixels = np.repeat(grey[:, :, None], 3, axis=2)
    key = image.info.get("transparency")
    if isinstance(key, int):
        pixels[samples == key] = background
    return pixels
