"""The resolved launch: every value with its origin, every decision with its reason.

`LaunchPlan` is made by `launcher.resolver` alone; what it says is what happens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from .findings import Finding
from .provenance import EntryOrigin, Origin, Resolved
from .settings import Settings

if TYPE_CHECKING:
    from .budget import MemoryBudget
    from .checkpoint import CheckpointFacts
    from .engine_launch import EngineInstall, EngineLaunch
    from .hardware import Hardware
    from .worker import WorkerSpec

PlannedDevice = Literal["cpu", "cuda", "unknown"]


@dataclass(frozen=True, slots=True)
class SettingValue:
    """One setting as it stands: JSON-ready value (a secret is "***"), origin, what it overrode."""

    path: str
    value: Any
    origin: Origin
    overrode: tuple[tuple[Origin, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """What the sources gave: settings, the origin of each leaf, notes that are no errors.

    `items` has the origin of every item of a list by the path of its leaf, `entries` those of a
    mapping by path and name; a source that knows no places inside a value leaves them out.
    `references` names the variable that holds a secret, by the path of its setting. `written` has
    the texts of lists and mappings that refer to variables, as they are written: by path, and by
    the index of the item or the name of the entry.
    """

    settings: Settings
    values: tuple[SettingValue, ...]
    findings: tuple[Finding, ...] = ()
    items: Mapping[str, tuple[Origin, ...]] = field(
        default_factory=lambda: dict[str, tuple[Origin, ...]]()
    )
    entries: Mapping[str, Mapping[str, EntryOrigin]] = field(
        default_factory=lambda: dict[str, Mapping[str, EntryOrigin]]()
    )
    references: Mapping[str, str] = field(default_factory=lambda: dict[str, str]())
    written: Mapping[tuple[str, int | str], str] = field(
        default_factory=lambda: dict[tuple[str, int | str], str]()
    )

    def origin(self, path: str) -> Origin:
        """Say who set the leaf at dotted `path`."""
        return next(value.origin for value in self.values if value.path == path)

    def item(self, path: str, index: int) -> Origin:
        """Say where an item of the list at `path` stands."""
        places = self.items.get(path, ())
        return places[index] if index < len(places) else self.origin(path)

    def entry(self, path: str, name: str) -> EntryOrigin:
        """Say where an entry of the mapping at `path` stands."""
        whole = self.origin(path)
        return self.entries.get(path, {}).get(name, EntryOrigin(whole, whole))


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """What will run. Devices are those that the workers will really use.

    `engine_version` is None for the built-in workers. `workers` is empty when an engine serves,
    and `launch` is None when none does. `install` is what the engine's interpreter has, None where
    nobody asked it. `references` are those of the settings.
    """

    settings: Settings
    values: tuple[SettingValue, ...]
    checkpoint: CheckpointFacts
    hardware: Hardware
    model: Resolved[str]
    engine: Resolved[str]
    engine_version: str | None
    worker_num: Resolved[int]
    decode_device: Resolved[PlannedDevice]
    preprocess_device: Resolved[PlannedDevice]
    workers: tuple[WorkerSpec, ...]
    findings: tuple[Finding, ...]
    launch: EngineLaunch | None = None
    install: EngineInstall | None = None
    references: Mapping[str, str] = field(default_factory=lambda: dict[str, str]())
    worker_memory_mib: Resolved[int] | None = None
    image_kernel: Resolved[str] | None = None
    budget: MemoryBudget | None = None

    def worker_specs(self) -> tuple[WorkerSpec, ...]:
        """All that each worker process needs, one spec a worker."""
        return self.workers
