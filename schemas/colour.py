"""Colours as a user writes them."""

from __future__ import annotations

import re

# The sixteen basic names of CSS 2.1 and the British spelling of one.
NAMES = {
    "black": "#000000", "silver": "#c0c0c0", "gray": "#808080", "grey": "#808080",
    "white": "#ffffff", "maroon": "#800000", "red": "#ff0000", "purple": "#800080",
    "fuchsia": "#ff00ff", "green": "#008000", "lime": "#00ff00", "olive": "#808000",
    "yellow": "#ffff00", "navy": "#000080", "blue": "#0000ff", "teal": "#008080",
    "aqua": "#00ffff",
}  # fmt: skip


def parse_colour(text: str) -> tuple[int, int, int]:
    """Give (red, green, blue), each 0 to 255, of a basic CSS name, `#rgb` or `#rrggbb`."""
    code = NAMES.get(text.lower(), text)
    if re.fullmatch(r"#[0-9a-fA-F]{3}", code):
        code = "#" + "".join(2 * digit for digit in code[1:])
    if not re.fullmatch(r"#[0-9a-fA-F]{6}", code):
        message = f"{text!r} is not a colour: write #rrggbb, #rgb or one of {', '.join(NAMES)}"
        raise ValueError(message)
    return int(code[1:3], 16), int(code[3:5], 16), int(code[5:7], 16)
