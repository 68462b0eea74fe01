"""The memory budget for readers: a table with every term, a bar as wide as the terminal, data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kimi_serve.schemas.budget import BudgetRow, GpuBudget, MemoryBudget

from ..budget.sentences import flag_text, gib, verdict
from .words import columns

_NARROWEST = 20


@dataclass(frozen=True, slots=True)
class Paper:
    """What text is written on: its width, and whether it shows more than ASCII."""

    width: int = 80
    has_blocks: bool = True


@dataclass(frozen=True, slots=True)
class _Part:
    """One stretch of the bar."""

    name: str
    mib: int
    sign: str


# What a part of the bar is drawn with, in block elements and in ASCII.
_SIGNS = {
    "engine": ("█", "#"),
    "others": ("▓", "%"),
    "contexts": ("▒", "+"),
    "images": ("░", "-"),
    "left": ("·", "."),
    "limit": ("┃", "|"),
}
SIGNS = "".join(blocks for blocks, _ in _SIGNS.values())


def budget_lines(budget: MemoryBudget | None, paper: Paper | None = None) -> list[str]:
    """Give the block of a plan; nothing where nothing is on a GPU."""
    if budget is None:
        return []
    paper = paper or Paper()
    lines: list[str] = []
    for gpu in budget.gpus:
        lines += columns(_table(gpu))
        lines += [f"  {line}" for line in bar(gpu, paper)]
        lines.append(f"  {gpu.name}: {verdict(gpu)}")
    if budget.others:
        lines.append(f"  {budget.others}")
    return [*lines, f"  {flag_text(budget)}"]


def _table(gpu: GpuBudget) -> list[tuple[str, ...]]:
    total = "unknown" if gpu.total_mib is None else f"{gpu.total_mib} MiB"
    left = "unknown" if gpu.left_mib is None else f"{gpu.left_mib} MiB"
    cells = [(gpu.name, total, "", gpu.total_source)]
    cells += [(f"- {row.name}", _size(row), row.formula, row.source) for row in gpu.rows]
    cells.append(("= left", left, "", ""))
    wide = max(len(size) for _, size, _, _ in cells)
    return [
        (name, size.rjust(wide), f"{formula} ({source})" if formula and source else source)
        for name, size, formula, source in cells
    ]


def _size(row: BudgetRow) -> str:
    if row.mib is None:
        return "unknown"
    return f"{row.mib} MiB" if row.is_counted else f"({row.mib} MiB)"


def bar(gpu: GpuBudget, paper: Paper) -> list[str]:
    """Draw the GPU as a bar with the end of its memory marked, and a legend; [] if not known."""
    if gpu.total_mib is None or gpu.left_mib is None:
        return []
    parts = [part for part in _parts(gpu, paper) if part.mib > 0]
    drawn = max(_NARROWEST, paper.width - 4)
    end = max(gpu.total_mib, gpu.total_mib - gpu.left_mib)
    cells = _cells(parts, end, drawn)
    if gpu.left_mib < 0:
        limit = min(drawn - 1, gpu.total_mib * drawn // end)
        cells = [*cells[:limit], _sign("limit", paper), *cells[limit + 1 :]]
        parts.append(_Part("end of memory", gpu.total_mib, _sign("limit", paper)))
    legend = [f"{part.sign} {part.name} {gib(part.mib)}" for part in parts]
    return ["[" + "".join(cells) + "]", *_folded(legend, paper.width - 2)]


def _cells(parts: Sequence[_Part], end: int, width: int) -> list[str]:
    """Give every part its share of the width by its end, so that errors do not add up."""
    cells: list[str] = []
    reached = 0
    for part in parts:
        reached += part.mib
        upto = round(reached * width / end)
        # What is there is seen, however small.
        cells += [part.sign] * max(1, upto - len(cells))
    return cells[:width] + [parts[-1].sign] * (width - len(cells))


def _parts(gpu: GpuBudget, paper: Paper) -> list[_Part]:
    engine = ("static pool", "graphs", "activations")
    groups = {"engine": 0, "others": 0, "contexts": 0, "images": 0}
    for row in gpu.rows:
        if row.is_counted and row.mib:
            home = "engine" if row.name in engine else row.name
            groups[home if home in groups else "others"] += row.mib
    parts = [_Part(name, mib, _sign(name, paper)) for name, mib in groups.items()]
    return [*parts, _Part("left", max(0, gpu.left_mib or 0), _sign("left", paper))]


def _sign(name: str, paper: Paper) -> str:
    blocks, plain = _SIGNS[name]
    return blocks if paper.has_blocks else plain


def _folded(words: Sequence[str], width: int) -> list[str]:
    lines: list[str] = []
    for word in words:
        if lines and len(lines[-1]) + 2 + len(word) <= width:
            lines[-1] += f"  {word}"
        else:
            lines.append(word)
    return lines


def budget_json(budget: MemoryBudget | None) -> dict[str, Any] | None:
    """Give the budget as JSON-ready data, with what follows from its terms."""
    if budget is None:
        return None
    return {
        "fits": budget.fits,
        "flag": budget.flag,
        "flag_saves_mib": budget.saved_mib,
        "others": budget.others,
        "gpus": [
            asdict(gpu)
            | {
                "needed_mib": gpu.needed_mib,
                "left_mib": gpu.left_mib,
                "fits": gpu.fits,
                "largest_worker_num": gpu.largest,
                "verdict": verdict(gpu),
            }
            for gpu in budget.gpus
        ],
    }
