"""Line plots as inline SVG, drawn here: the page must show them without a network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _HEIGHT = 460, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 16, 34, 40
_COLOURS = ("#2563eb", "#d9480f", "#2b8a3e", "#862e9c")


@dataclass(frozen=True, slots=True)
class Series:
    """One line: points (x, y) by x; a dashed one is a limit or a prediction."""

    name: str
    points: Sequence[tuple[float, float]]
    is_dashed: bool = False


def line_plot(title: str, x_name: str, y_name: str, lines: Sequence[Series]) -> str:
    """Draw lines over common axes that begin at zero; x positions are evenly spaced by rank."""
    # Colours go by place, so that a line has the same one in every plot.
    drawn = [(line, _COLOURS[at % len(_COLOURS)]) for at, line in enumerate(lines) if line.points]
    if not drawn:
        return ""
    xs = sorted({x for line, _ in drawn for x, _ in line.points})
    top = _nice(max(y for line, _ in drawn for _, y in line.points))
    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)}">',
        f'<text x="{_LEFT}" y="16" class="title">{escape(title)}</text>',
    ]
    for step in range(5):
        value = top * step / 4
        y = _y(value, top)
        parts.append(f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{_WIDTH - _RIGHT}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" class="end">{value:.4g}</text>')
    for x in xs:
        parts.append(
            f'<text x="{_x(x, xs):.1f}" y="{_HEIGHT - _BOTTOM + 16}" class="mid">{x:g}</text>'
        )
    parts.append(
        f'<text x="{(_LEFT + _WIDTH - _RIGHT) / 2}" y="{_HEIGHT - 6}" class="mid">'
        f"{escape(x_name)}</text>"
    )
    parts.append(f'<text x="6" y="30" class="unit">{escape(y_name)}</text>')
    for index, (line, colour) in enumerate(drawn):
        parts += _line(line, colour, index, xs, top)
    parts.append("</svg>")
    return "\n".join(parts)


def _line(line: Series, colour: str, index: int, xs: Sequence[float], top: float) -> list[str]:
    places = [(_x(x, xs), _y(y, top)) for x, y in line.points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dashes = ' stroke-dasharray="6 4"' if line.is_dashed else ""
    parts = [f'<polyline points="{path}" stroke="{colour}"{dashes}/>']
    for (x, y), (given, value) in zip(places, line.points, strict=True):
        label = f"{line.name}, {given:g}: {value:g}"
        parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}">'
            f"<title>{escape(label)}</title></circle>"
        )
    # The legend lies to the right of the title's line, one entry after the other.
    at = _WIDTH - _RIGHT - 130 * (index + 1)
    parts.append(f'<rect x="{at}" y="22" width="10" height="10" fill="{colour}"/>')
    parts.append(f'<text x="{at + 14}" y="31" class="unit">{escape(line.name)}</text>')
    return parts


def _x(value: float, xs: Sequence[float]) -> float:
    rank = list(xs).index(value)
    share = 0.5 if len(xs) == 1 else rank / (len(xs) - 1)
    return _LEFT + 10 + share * (_WIDTH - _LEFT - _RIGHT - 20)


def _y(value: float, top: float) -> float:
    return _HEIGHT - _BOTTOM - value / top * (_HEIGHT - _TOP - _BOTTOM - 6)


def _nice(value: float) -> float:
    """Round up to a number that divides well into four."""
    if value <= 0:
        return 1.0
    unit = 10.0 ** (len(f"{int(value)}") - 1) if value >= 1 else 0.1
    for factor in (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10):
        if value <= factor * unit:
            return factor * unit
    return value
