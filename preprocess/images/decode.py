"""Encoded bytes to RGB pixels: limits first, one decoder by content, every fault a MediaError."""

from __future__ import annotations

import contextlib
import logging
import math
import re
import warnings
from collections.abc import Generator
from dataclasses import dataclass
from io import BytesIO

import numpy as np
import simplejpeg  # type: ignore[import-untyped]
from numpy.typing import NDArray
from PIL import (
    AvifImagePlugin,
    BmpImagePlugin,
    ExifTags,
    GifImagePlugin,
    Image,
    JpegImagePlugin,
    PngImagePlugin,
    TiffImagePlugin,
    WebPImagePlugin,
)

from kimi_serve.schemas.errors import (
    MediaError,
    MediaTooLargeError,
    RequestError,
    UnsupportedMediaError,
)
from kimi_serve.schemas.worker import ImageRules

from .display import (
    checkpoint_pixels,
    display_pixels,
    is_white_zero,
    orientation,
    scale_colour_key,
    upright,
)
from .headers import read_header
from .jpeg_scans import has_many_marks, require_few_scans
from .limits import require_bytes, require_pixels
from .picture import Picture
from .png import Unfilter, plain_pixels
from .sniff import FORMAT_NAMES, Sniffed, sniff

logger = logging.getLogger(__name__)

_END = b"\xff\xd9"
_MOST_POOLED = 64 * 2**20
_DEEP_WHITE_ZERO = (TiffImagePlugin.MM, 0, (1,), 1, (16,), ())

# Tags of TIFF, and tiles that files of any size may have.
_TILE_WIDTH, _TILE_HEIGHT, _USUAL_TILE = 322, 323, 1 << 20

_PILLOW_UNSIZED = ("not identified by this driver", "its header gives no size or no known layout")


@dataclass(frozen=True, slots=True, eq=False)
class DecodedImage:
    """One image as RGB, upright where the policy says so."""

    picture: Picture
    format: str
    orientation_applied: bool

    @property
    def pixels(self) -> NDArray[np.uint8]:
        """Give [height, width, 3]; a copy where a Pillow image holds the pixels."""
        return np.asarray(self.picture)

    @property
    def size(self) -> tuple[int, int]:
        """Give width and height."""
        if isinstance(self.picture, Image.Image):
            return self.picture.size
        height, width, _ = self.picture.shape
        return width, height


@dataclass(frozen=True, slots=True)
class JpegHeader:
    """A whole grey or YCbCr JPEG, before it is decoded; `orientation` as the policy has it.

    `subsampling` is "444", "422", "420", "440", "411" or "Gray".
    """

    size: tuple[int, int]
    orientation: int
    subsampling: str


class PixelPool:
    """Memory for decoded pixels that is used again for the next image: one image at a time.

    What the rare huge image takes is not kept.
    """

    def __init__(self) -> None:
        self._memory = np.empty(0, np.uint8)

    def take(self, nbytes: int) -> NDArray[np.uint8]:
        """Give at least `nbytes`; whatever was taken before is overwritten."""
        if self._memory.nbytes < nbytes:
            self.release()
            memory = np.empty(nbytes, np.uint8)
            if nbytes > _MOST_POOLED:
                return memory
            self._memory = memory
        return self._memory

    def release(self) -> None:
        """Give the memory back, once nobody holds an image in it."""
        self._memory = np.empty(0, np.uint8)


def decode_image(
    data: bytes,
    rules: ImageRules,
    pool: PixelPool | None = None,
    unfilter: Unfilter | None = None,
) -> DecodedImage:
    """Decode the first frame of an image under the rules.

    With a `pool` the pixels may lie there: they are good until the next image is decoded. Without
    an `unfilter` every PNG is decoded by Pillow, to the same pixels.
    """
    pool = PixelPool() if pool is None else pool
    require_bytes(len(data), rules.max_bytes)
    image_format = _accepted_format(sniff(data), rules)
    declared = read_header(data, image_format)
    if declared is not None:
        require_pixels(declared.size, rules.max_pixels)
        if not declared.has_colours:
            # Pillow would show the indices as shades of almost black.
            raise MediaError("the GIF cannot be decoded: it has no colour table")
    with _decoder(FORMAT_NAMES[image_format], rules):
        image = _open(data, image_format)
        require_pixels(image.size, rules.max_pixels)
        _check_tiles(image, rules)
        quick = _quick_pixels(data, image, rules, pool, unfilter)
        if rules.policy == "checkpoint":
            return _decode_for_checkpoint(image, image_format, quick)
        return _decode_for_display(data, image, image_format, rules, quick)


def inspect_jpeg(data: bytes, rules: ImageRules) -> JpegHeader | None:
    """Read the header of a plain JPEG that is accepted; None leaves the bytes to `decode_image`.

    One that does not end as it should, or is too short for its size, is left as well: decoders
    differ in what they make of it.
    """
    if sniff(data).format != "jpeg" or "jpeg" not in rules.formats or len(data) > rules.max_bytes:
        return None
    try:
        with _decoder("JPEG", rules):
            return _plain_header(data, rules)
    except RequestError:
        return None


def _plain_header(data: bytes, rules: ImageRules) -> JpegHeader | None:
    image = _open(data, "jpeg")
    require_pixels(image.size, rules.max_pixels)
    height, width, colours, sampling = simplejpeg.decode_jpeg_header(data, strict=True)
    is_plain = (
        image.format == "JPEG" and colours in ("YCbCr", "Gray") and image.mode in ("L", "RGB")
    )
    if not is_plain or (width, height) != image.size or not _is_whole(data, image.size):
        return None
    turn = 1 if rules.policy == "checkpoint" else orientation(image)
    return JpegHeader(image.size, turn, str(sampling))


def _is_whole(data: bytes, size: tuple[int, int]) -> bool:
    """Tell whether a JPEG ends as it should, long enough, and holds no other by the look of it."""
    # Two bits a block of 8 x 8 are the least; some progressive files have fewer.
    blocks = math.prod(-(-side // 8) for side in size)
    return data.endswith(_END) and 4 * len(data) >= blocks and not has_many_marks(data)


def _accepted_format(found: Sniffed, rules: ImageRules) -> str:
    if found.format is not None and found.format in rules.formats:
        return found.format
    accepted = " or ".join(FORMAT_NAMES[name] for name in rules.formats)
    accepted = accepted.replace(" or ", ", ", max(0, len(rules.formats) - 2))
    if found.format is not None or found.is_raster:
        raise UnsupportedMediaError(f"{found.name} images are not accepted: send {accepted}")
    if found.name == "empty":
        raise MediaError(f"the image is empty (0 bytes): send {accepted}")
    if found.name == "unknown bytes":
        raise MediaError(f"the bytes are in no known image format: send {accepted}")
    raise MediaError(f"{found.name} is not supported: send {accepted}")


def _check_tiles(image: Image.Image, rules: ImageRules) -> None:
    """Bound the tiles of a TIFF: it is decoded by whole ones, however small the picture is."""
    if not isinstance(image, TiffImagePlugin.TiffImageFile):
        return
    width, height = image.tag_v2.get(_TILE_WIDTH, 1), image.tag_v2.get(_TILE_HEIGHT, 1)
    if width * height > max(rules.max_pixels, _USUAL_TILE):
        raise MediaTooLargeError(
            f"the TIFF has tiles of {width} x {height} pixels; "
            f"at most {rules.max_pixels} are accepted (image.max_pixels)"
        )


def _open(data: bytes, image_format: str) -> Image.Image:
    """Read the header with the plugin of this format and no other."""
    source = BytesIO(data)
    match image_format:
        case "jpeg":
            require_few_scans(data)
            # The factory, because it also knows MPO, a JPEG with further pictures behind it.
            return JpegImagePlugin.jpeg_factory(source, "")
        case "png":
            return _open_png(data, source)
        case "webp":
            return _open_webp(data, source)
        case "gif":
            return GifImagePlugin.GifImageFile(source)
        case "bmp":
            return BmpImagePlugin.BmpImageFile(source)
        case "tiff":
            # Pillow knows 16-bit grey with white as zero in the other byte order only.
            TiffImagePlugin.OPEN_INFO.setdefault(_DEEP_WHITE_ZERO, ("I;16B", "I;16B"))
            return TiffImagePlugin.TiffImageFile(source)
        case "avif":
            if not AvifImagePlugin.SUPPORTED:
                raise UnsupportedMediaError("this build of Pillow cannot decode AVIF")
            # One thread an image, like every other decoder: the workers share the cores.
            AvifImagePlugin.DEFAULT_MAX_THREADS = 1
            return AvifImagePlugin.AvifImageFile(source)
        case _:
            raise UnsupportedMediaError(f"no decoder for {image_format!r}")


def _open_png(data: bytes, source: BytesIO) -> Image.Image:
    image = PngImagePlugin.PngImageFile(source)
    if image.mode == "P" and (image.palette is None or not image.palette.palette):
        # Pillow would show black.
        raise MediaError("the PNG cannot be decoded: it has indexed colours and no palette")
    return image


def _quick_pixels(
    data: bytes, image: Image.Image, rules: ImageRules, pool: PixelPool, unfilter: Unfilter | None
) -> NDArray[np.uint8] | None:
    """Decode what is not Pillow's alone, bit-equal to it; None leaves the image to Pillow."""
    pixels: NDArray[np.uint8] | None = None
    if isinstance(image, JpegImagePlugin.JpegImageFile):
        pixels = _turbo_pixels(data, image, pool)
    elif isinstance(image, PngImagePlugin.PngImageFile) and unfilter is not None:
        is_for_viewers = rules.policy != "checkpoint"
        pixels = plain_pixels(data, image, pool.take, unfilter, must_be_opaque=is_for_viewers)
    if pixels is None:
        pool.release()  # Pillow needs as much
    return pixels


def _open_webp(data: bytes, source: BytesIO) -> Image.Image:
    try:
        return WebPImagePlugin.WebPImageFile(source)
    except OSError:
        # It says the same of damage and of no memory for its two canvases; this tells them apart.
        declared = read_header(data, "webp")
        if declared is not None:
            np.empty(2 * 4 * math.prod(declared.size), np.uint8)
        raise


def _decode_for_checkpoint(
    image: Image.Image, image_format: str, quick: NDArray[np.uint8] | None
) -> DecodedImage:
    if image.mode == "I;16B" and is_white_zero(image):
        # Bare Pillow, and with it the checkpoint's processor, refuses it.
        raise MediaError("the TIFF cannot be decoded: unknown pixel mode")
    # Pillow itself turns TIFF upright while loading, so the checkpoint's processor sees that too.
    turned = image_format == "tiff" and _tiff_orientation(image) != 1
    picture = checkpoint_pixels(image) if quick is None else quick
    return DecodedImage(picture, image_format, turned)


def _decode_for_display(
    data: bytes,
    image: Image.Image,
    image_format: str,
    rules: ImageRules,
    quick: NDArray[np.uint8] | None,
) -> DecodedImage:
    turned = image_format == "tiff" and _tiff_orientation(image) != 1
    if image_format == "png":
        scale_colour_key(image, data[24])
    picture: Picture | None = quick
    if picture is None:
        # Loaded once: after a failure a second load() succeeds and gives black.
        image.load()
        picture = display_pixels(image, rules.background)
    value = orientation(image)
    if value != 1:
        picture = upright(np.asarray(picture), value)
    return DecodedImage(picture, image_format, turned or value != 1)


def _tiff_orientation(image: Image.Image) -> int:
    """Read the tag before loading, which applies and removes it."""
    value = image.getexif().get(ExifTags.Base.Orientation)
    return value if isinstance(value, int) and 2 <= value <= 8 else 1


def _turbo_pixels(data: bytes, image: Image.Image, pool: PixelPool) -> NDArray[np.uint8] | None:
    """Decode grey and YCbCr JPEGs faster, bit-equal to Pillow; None leaves it to Pillow."""
    if image.mode not in ("L", "RGB"):
        return None
    try:
        height, width, _, _ = simplejpeg.decode_jpeg_header(data, strict=True)
        # Two parsers that disagree about the size would defeat the pixel cap.
        if (width, height) != image.size:
            return None
        memory = pool.take(3 * image.width * image.height)
        pixels: NDArray[np.uint8] = simplejpeg.decode_jpeg(data, "RGB", buffer=memory, strict=True)
    except (ValueError, LookupError, RuntimeError, TypeError, OverflowError) as error:
        logger.debug("a JPEG is left to Pillow: %s", error)
        return None
    return pixels


@contextlib.contextmanager
def _decoder(name: str, rules: ImageRules) -> Generator[None]:
    """Hold Pillow to our pixel cap and turn whatever a decoder raises into a MediaError."""
    previous = Image.MAX_IMAGE_PIXELS
    Image.MAX_IMAGE_PIXELS = rules.max_pixels
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # Pillow raises only above twice its cap and warns below that.
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            yield
    except RequestError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        message = (
            f"the {name} has a frame of more than {rules.max_pixels} pixels (image.max_pixels)"
        )
        raise MediaTooLargeError(message) from error
    except MemoryError as error:
        raise MediaTooLargeError(f"the {name} needs more memory than there is") from error
    except Exception as error:  # decoders on hostile bytes: any failure is the image's fault
        raise MediaError(f"the {name} cannot be decoded: {_fault(error)}") from error
    finally:
        Image.MAX_IMAGE_PIXELS = previous


def _fault(error: Exception) -> str:
    """Give a decoder's reason without object addresses or paths."""
    if isinstance(error, SyntaxError) and error.__cause__ is not None:
        # Pillow's wrapper for what a plugin trips over while it reads a header.
        return "its header is damaged or cut"
    if not isinstance(error, OSError | SyntaxError | ValueError | EOFError):
        return f"its structure is damaged ({type(error).__name__})"
    text = str(error)[:500].replace(*_PILLOW_UNSIZED)
    text = re.sub(r"<[^>]*>|\b0x[0-9a-fA-F]+|/\S*/\S*", "...", text)
    text = "".join(character for character in text if character.isprintable())[:160].strip()
    return text or f"its data is damaged ({type(error).__name__})"
