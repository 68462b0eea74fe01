"""The memory budget as a picture: worker count against memory, the flag on and off, the limit.

The only module of the reports that imports Pillow; drawn at twice the size it is read at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from kimi_serve.schemas.budget import GpuBudget, MemoryBudget
from kimi_serve.schemas.errors import PlanError
from kimi_serve.schemas.vocabulary import FORCE_CPU

from ..budget.sentences import gib, verdict

_SCALE = 2
_SIZE = (900, 560)
_LEFT, _RIGHT, _TOP, _BOTTOM = 84, 28, 118, 70
_INK, _SOFT, _GRID = "#1f2933", "#52606d", "#e4e7eb"
_OFF, _ON, _LIMIT, _ENGINE, _OVER = "#c05621", "#2b6cb0", "#c53030", "#cbd2d9", "#fdecec"
_LEAST_WORKERS = 16
_MOST_DOTS = 32


@dataclass(frozen=True, slots=True)
class _Axes:
    """Where worker counts and MiB lie on the picture; the memory axis starts at `foot_mib`."""

    workers: int
    top_mib: int
    foot_mib: int

    def x(self, workers: float) -> float:
        width = _SIZE[0] - _LEFT - _RIGHT
        return (_LEFT + width * workers / self.workers) * _SCALE

    def y(self, mib: float) -> float:
        height = _SIZE[1] - _TOP - _BOTTOM
        return (_SIZE[1] - _BOTTOM - height * self._share(mib)) * _SCALE

    def _share(self, mib: float) -> float:
        return (mib - self.foot_mib) / (self.top_mib - self.foot_mib)


def save_budget_picture(budget: MemoryBudget, path: Path) -> None:
    """Draw the GPU that decides; raises PlanError where its terms are not known."""
    gpu = budget.tightest
    if gpu.total_mib is None or gpu.fixed_mib is None:
        raise PlanError(
            f"there is nothing to draw: the budget of {gpu.name} is not known",
            hint="set gpu.total_mib and gpu.mem_fraction_static",
        )
    image = draw_budget(gpu, gpu.total_mib, gpu.fixed_mib)
    try:
        image.save(path, format="PNG")
    except OSError as error:
        raise PlanError(f"{path}: {error.strerror or error}", hint="choose another file") from None


def draw_budget(gpu: GpuBudget, total_mib: int, fixed_mib: int) -> Image.Image:
    """Draw one GPU of which everything is known."""
    image = Image.new("RGB", (_SIZE[0] * _SCALE, _SIZE[1] * _SCALE), "white")
    pen = ImageDraw.Draw(image)
    workers = max(_LEAST_WORKERS, gpu.workers, min(64, 2 * (gpu.largest or 0)))
    highest = max(total_mib, fixed_mib + workers * gpu.unforced_worker_mib)
    axes = _Axes(workers, int(highest * 1.04), _foot(fixed_mib, highest))
    pen.rectangle((axes.x(0), axes.y(axes.top_mib), axes.x(workers), axes.y(total_mib)), fill=_OVER)
    pen.rectangle(
        (axes.x(0), axes.y(fixed_mib), axes.x(workers), axes.y(axes.foot_mib)), fill=_ENGINE
    )
    _draw_axes(pen, axes)
    _line(pen, axes, lambda number: fixed_mib + number * gpu.unforced_worker_mib, _OFF)
    _line(pen, axes, lambda number: fixed_mib + number * gpu.forced_worker_mib, _ON)
    _draw_limit(pen, axes, total_mib)
    _draw_plan(pen, axes, gpu, fixed_mib)
    _text(
        pen,
        (axes.x(0) + 20, axes.y((fixed_mib + axes.foot_mib) / 2)),
        _fixed_text(gpu, fixed_mib),
        _SOFT,
        14,
        "lm",
    )
    _head(pen, gpu)
    return image


def _foot(fixed_mib: int, highest: int) -> int:
    """Begin above nothing where what does not change takes most of the height."""
    if fixed_mib < highest // 2:
        return 0
    room = highest - fixed_mib
    return max(0, fixed_mib - room) // (10 * 1024) * 10 * 1024


def _fixed_text(gpu: GpuBudget, fixed_mib: int) -> str:
    names = [row.name for row in gpu.rows if row.is_counted and not row.grows and row.mib]
    return f"{', '.join(names)}: {gib(fixed_mib)}" if names else ""


def _draw_axes(pen: ImageDraw.ImageDraw, axes: _Axes) -> None:
    for mib in _ticks(axes.foot_mib, axes.top_mib):
        y = axes.y(mib)
        pen.line((axes.x(0), y, axes.x(axes.workers), y), fill=_GRID, width=_SCALE)
        _text(pen, (axes.x(0) - 16, y), f"{mib // 1024}", _SOFT, 13, "rm")
    step = next(step for step in (1, 2, 4, 5, 8, 10, 16, 32, 64, 128) if axes.workers / step <= 16)
    for number in range(0, axes.workers + 1, step):
        x, y = axes.x(number), axes.y(axes.foot_mib)
        pen.line((x, y, x, y + 10), fill=_SOFT, width=_SCALE)
        _text(pen, (x, y + 16), f"{number}", _SOFT, 13, "ma")
    pen.line(
        (axes.x(0), axes.y(axes.foot_mib), axes.x(axes.workers), axes.y(axes.foot_mib)),
        fill=_SOFT,
        width=_SCALE,
    )
    pen.line(
        (axes.x(0), axes.y(axes.foot_mib), axes.x(0), axes.y(axes.top_mib)),
        fill=_SOFT,
        width=_SCALE,
    )
    middle = (axes.x(axes.workers / 2), (_SIZE[1] - 14) * _SCALE)
    _text(pen, middle, "workers (tokenizer.worker_num)", _INK, 14, "ms")
    start = f" (from {axes.foot_mib // 1024})" if axes.foot_mib else ""
    _text(pen, (20 * _SCALE, (_TOP - 12) * _SCALE), f"GPU memory, GiB{start}", _INK, 14, "ls")


def _ticks(foot_mib: int, top_mib: int) -> Iterator[int]:
    """Give five to ten round sizes between both ends."""
    sizes = (1, 2, 5, 10, 20, 25, 50, 100, 200, 500, 1000)
    step = 1024 * next((size for size in sizes if (top_mib - foot_mib) / 1024 / size <= 9), 5000)
    yield from range(-(-foot_mib // step) * step, top_mib + 1, step)


def _line(pen: ImageDraw.ImageDraw, axes: _Axes, size: Callable[[int], int], colour: str) -> None:
    points = [(axes.x(number), axes.y(size(number))) for number in range(1, axes.workers + 1)]
    pen.line((points[0], points[-1]), fill=colour, width=3 * _SCALE)
    for x, y in points if len(points) <= _MOST_DOTS else ():
        _dot(pen, x, y, 4, colour)


def _dot(pen: ImageDraw.ImageDraw, x: float, y: float, radius: int, colour: str) -> None:
    reach = radius * _SCALE
    pen.ellipse((x - reach, y - reach, x + reach, y + reach), fill=colour)


def _draw_limit(pen: ImageDraw.ImageDraw, axes: _Axes, total_mib: int) -> None:
    _dashes(pen, axes.x(0), axes.x(axes.workers), axes.y(total_mib))


def _dashes(pen: ImageDraw.ImageDraw, start: float, stop: float, y: float) -> None:
    while start < stop:
        pen.line((start, y, min(start + 7 * _SCALE, stop), y), fill=_LIMIT, width=2 * _SCALE)
        start += 12 * _SCALE


def _draw_plan(pen: ImageDraw.ImageDraw, axes: _Axes, gpu: GpuBudget, fixed_mib: int) -> None:
    """Mark what is planned, with a ring."""
    x, y = axes.x(gpu.workers), axes.y(fixed_mib + gpu.needed_mib)
    reach = 8 * _SCALE
    pen.ellipse((x - reach, y - reach, x + reach, y + reach), outline=_INK, width=2 * _SCALE)


def _head(pen: ImageDraw.ImageDraw, gpu: GpuBudget) -> None:
    _text(pen, (20 * _SCALE, 34 * _SCALE), f"{gpu.name}: {verdict(gpu)}", _INK, 18, "ls")
    x = 20.0 * _SCALE
    each = (
        (_OFF, f"{FORCE_CPU} off, {gpu.unforced_worker_mib} MiB a worker"),
        (_ON, f"on, {gpu.forced_worker_mib} MiB a worker"),
        (_LIMIT, f"end of memory, {gib(gpu.total_mib or 0)}"),
        ("", "the plan"),
    )
    y = 64 * _SCALE
    for colour, words in each:
        if colour == _LIMIT:
            _dashes(pen, x, x + 22 * _SCALE, y)
        elif colour:
            pen.line((x, y, x + 22 * _SCALE, y), fill=colour, width=3 * _SCALE)
        else:
            reach = 6 * _SCALE
            middle = x + 14 * _SCALE
            box = (middle - reach, y - reach, middle + reach, y + reach)
            pen.ellipse(box, outline=_INK, width=2 * _SCALE)
        _text(pen, (x + 28 * _SCALE, y), words, _INK, 13, "lm")
        x += 28 * _SCALE + _font(13).getlength(words) + 22 * _SCALE


def _text(
    pen: ImageDraw.ImageDraw,
    place: tuple[float, float],
    words: str,
    colour: str,
    size: int,
    anchor: str,
) -> None:
    pen.text(place, words, fill=colour, font=_font(size), anchor=anchor)


def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size * _SCALE)
