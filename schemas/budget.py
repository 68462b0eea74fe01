"""What one launch takes of its GPUs: terms with their arithmetic and source, and whether they fit.

Sizes are whole MiB. A term that is not known is None and makes the verdict unknown; one that is
not counted is said and left out of the sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

RowName = Literal[
    "static pool",
    "graphs",
    "activations",
    "more activations",
    "in use now",
    "feature pool",
    "contexts",
    "images",
]


@dataclass(frozen=True, slots=True)
class BudgetRow:
    """One term: its size, how it was computed and who says so; `grows` with every worker."""

    name: RowName
    mib: int | None
    formula: str
    source: str
    is_counted: bool = True
    grows: bool = False


@dataclass(frozen=True, slots=True)
class GpuBudget:
    """One GPU. `total_source` says who knows its size, or why nobody does.

    The last two are what one worker takes with image.force_cpu_preprocessing off and on;
    `worker_mib` is the one that is planned.
    """

    name: str
    total_mib: int | None
    total_source: str
    rows: tuple[BudgetRow, ...]
    workers: int
    worker_mib: int
    unforced_worker_mib: int
    forced_worker_mib: int

    @property
    def fixed_mib(self) -> int | None:
        """What is taken however many workers there are; None where a term is not known."""
        sizes = [row.mib for row in self.rows if row.is_counted and not row.grows]
        known = [size for size in sizes if size is not None]
        return sum(known) if len(known) == len(sizes) else None

    @property
    def room_mib(self) -> int | None:
        """What is there for workers; below 0 where the rest alone is too much."""
        fixed = self.fixed_mib
        return None if self.total_mib is None or fixed is None else self.total_mib - fixed

    @property
    def needed_mib(self) -> int:
        """What the workers take."""
        return self.workers * self.worker_mib

    @property
    def left_mib(self) -> int | None:
        """What nobody takes; below 0 where it does not fit."""
        return None if self.room_mib is None else self.room_mib - self.needed_mib

    @property
    def fits(self) -> bool | None:
        """Whether everything fits; a GPU that no worker touches holds it."""
        if not self.worker_mib:
            return True
        return None if self.left_mib is None else self.left_mib >= 0

    @property
    def largest(self) -> int | None:
        """The most workers that fit; None where it is not known, or where nothing limits them."""
        if self.room_mib is None or not self.worker_mib:
            return None
        return max(0, self.room_mib // self.worker_mib)

    def row(self, name: RowName) -> BudgetRow | None:
        """Give a term by name."""
        return next((row for row in self.rows if row.name == name), None)


@dataclass(frozen=True, slots=True)
class MemoryBudget:
    """The GPUs whose terms differ, that with the workers first; `others` names those left out.

    `flag` is what image.force_cpu_preprocessing does here: it would save, it saves, this model
    ignores it, or there is nothing to save.
    """

    gpus: tuple[GpuBudget, ...]
    others: str
    flag: Literal["would save", "saves", "ignored", "needless"]

    @property
    def tightest(self) -> GpuBudget:
        """The GPU that decides: the first that does not fit, is not known, or has least left."""
        order = {False: 0, None: 1, True: 2}
        return min(
            self.gpus, key=lambda gpu: (order[gpu.fits], not gpu.worker_mib, gpu.left_mib or 0)
        )

    @property
    def fits(self) -> bool | None:
        """Whether the launch fits on all GPUs."""
        return self.tightest.fits

    @property
    def saved_mib(self) -> int:
        """What the flag takes off the GPUs, or would."""
        return sum(
            gpu.workers * (gpu.unforced_worker_mib - gpu.forced_worker_mib) for gpu in self.gpus
        )
