"""What was measured, as plain data: the report in every form is made from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Bound:
    """The most that two ways may differ, in levels of 8 bits."""

    max_levels: float
    mean_levels: float

    @property
    def text(self) -> str:
        if self.max_levels == 0:
            return "equal in every bit"
        return f"max {self.max_levels:g}, mean {self.mean_levels:g} levels"


@dataclass(frozen=True, slots=True)
class ImageParity:
    """One image made both ways.

    `share` is that of the values that differ in any bit, `level_share` of those that differ by
    half a level or more.
    """

    name: str
    size: tuple[int, int]
    format: str
    is_resized: bool
    tokens: int
    max_levels: float
    mean_levels: float
    share: float
    level_share: float
    grids_equal: bool
    tokens_equal: bool
    bound: Bound
    note: str = ""

    @property
    def holds(self) -> bool:
        within = (
            self.max_levels <= self.bound.max_levels and self.mean_levels <= self.bound.mean_levels
        )
        is_exact = self.bound.max_levels > 0 or self.share == 0
        return within and is_exact and self.grids_equal and self.tokens_equal


@dataclass(frozen=True, slots=True)
class Comparison:
    """One way beside another, over all images."""

    title: str
    images: tuple[ImageParity, ...]

    @property
    def holds(self) -> bool:
        return all(image.holds for image in self.images)


@dataclass(frozen=True, slots=True)
class LoadPoint:
    """One configuration under load with so many workers; memory in MiB, None where not measured.

    `cores` is the processor time of workers and front over the time that passed.
    """

    configuration: str
    workers: int
    images: int
    images_per_s: float
    p50_ms: float
    p95_ms: float
    cores: float
    cpu_ms_per_image: float
    ready_s: float
    pss_mib: float
    gpu_workers_mib: tuple[float, ...] | None = None
    gpu_total_mib: float | None = None
    gpu_predicted_mib: float | None = None


@dataclass(frozen=True, slots=True)
class Promise:
    """Something that is claimed, and whether it holds here."""

    text: str
    holds: bool
    detail: str


@dataclass(frozen=True, slots=True)
class NotMeasured:
    """What this run could not show."""

    what: str
    why: str


@dataclass(slots=True)
class Report:
    """Everything of one run."""

    version: str
    started: str
    host: Mapping[str, str]
    settings: Mapping[str, str]
    comparisons: list[Comparison] = field(default_factory=list[Comparison])
    loads: list[LoadPoint] = field(default_factory=list[LoadPoint])
    promises: list[Promise] = field(default_factory=list[Promise])
    not_measured: list[NotMeasured] = field(default_factory=list[NotMeasured])

    @property
    def holds(self) -> bool:
        """Whether all that was measured is as promised."""
        parts: Sequence[Comparison | Promise] = [*self.comparisons, *self.promises]
        return all(part.holds for part in parts)

    def document(self) -> dict[str, Any]:
        """Give the report as JSON-ready data, with the verdicts."""
        found = asdict(self)
        found["holds"] = self.holds
        for comparison, entry in zip(self.comparisons, found["comparisons"], strict=True):
            entry["holds"] = comparison.holds
            for image, row in zip(comparison.images, entry["images"], strict=True):
                row["holds"] = image.holds
        return found
