"""How large an image may be; every refusal names the setting that says so."""

from __future__ import annotations

from kimi_serve.schemas.errors import MediaError, MediaTooLargeError

# The resize filter's table grows with the side, not with the pixels: 49 million in one row would
# need gigabytes. JPEG, GIF and WebP cannot be longer anyway.
MAX_SIDE = 65_535


def require_bytes(nbytes: int, most: int) -> None:
    """Refuse a file of more than media.max_bytes; raises MediaTooLargeError."""
    if nbytes > most:
        message = f"the image has {nbytes} bytes; at most {most} are accepted (media.max_bytes)"
        raise MediaTooLargeError(message)


def require_pixels(size: tuple[int, int], most: int) -> None:
    """Refuse a picture of more than image.max_pixels, or of none; raises MediaError."""
    width, height = size
    if width < 1 or height < 1:
        raise MediaError(f"the image declares the size {width} x {height}")
    if width * height > most:
        raise MediaTooLargeError(
            f"the image has {width} x {height} = {width * height} pixels; "
            f"at most {most} are accepted (image.max_pixels)"
        )
    if max(size) > MAX_SIDE:
        message = f"the image has {width} x {height} pixels; a side may have {MAX_SIDE}"
        raise MediaTooLargeError(message)
