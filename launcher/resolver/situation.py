"""What the decisions of one launch look at: settings, checkpoint, machine and support table."""

from __future__ import annotations

from dataclasses import dataclass

from kimi_serve.schemas.checkpoint import CheckpointFacts
from kimi_serve.schemas.hardware import Gpu, Hardware
from kimi_serve.schemas.plan import LoadedSettings
from kimi_serve.schemas.settings import Settings
from kimi_serve.schemas.support import SupportRow, SupportTable
from kimi_serve.schemas.vocabulary import EngineKind

FLAG = "image.force_cpu_preprocessing"
WORKER_NUM = "tokenizer.worker_num"


@dataclass(frozen=True, slots=True)
class GpuPresence:
    """Whether a CUDA device is there, who says so, and the memory of the first, if known."""

    is_present: bool
    source: str
    reason: str
    total_mib: int | None


@dataclass(frozen=True, slots=True)
class Situation:
    """The inputs of the resolver with what was looked up for them.

    `version` is the engine's version that the table was asked for, "" for the built-in workers;
    `row` is None where the table does not know the architecture at that version.
    """

    loaded: LoadedSettings
    checkpoint: CheckpointFacts
    hardware: Hardware
    support: SupportTable
    gpu: GpuPresence
    version: str
    row: SupportRow | None

    @property
    def settings(self) -> Settings:
        return self.loaded.settings

    @property
    def kind(self) -> EngineKind:
        return self.settings.engine.kind

    @property
    def engine_name(self) -> str:
        return "the built-in workers" if self.kind == "none" else f"{self.kind} {self.version}"

    @property
    def is_forced(self) -> bool:
        return self.settings.image.force_cpu_preprocessing

    @property
    def num_workers(self) -> int:
        return self.settings.tokenizer.worker_num

    @property
    def architecture(self) -> str:
        """The architecture that decided, or all that config.json names."""
        names = self.checkpoint.architectures
        if self.row is not None:
            names = tuple(name for name in names if name in self.row.architectures)[:1]
        return ", ".join(names) or "a checkpoint that names no architecture"

    @property
    def has_images(self) -> bool:
        """Whether the model takes images: an engine goes by the architecture alone."""
        uses_gpu = self.row is not None and "cuda" in (self.row.decode, self.row.preprocess)
        return self.checkpoint.has_vision or uses_gpu

    @property
    def is_version_known(self) -> bool:
        """Whether any row covers this version of the engine."""
        return self.support.is_known(self.kind, self.version)


def look_up(
    loaded: LoadedSettings, checkpoint: CheckpointFacts, hardware: Hardware, support: SupportTable
) -> Situation:
    """Find GPU, engine version and table row for the inputs."""
    engine = loaded.settings.engine
    version = "" if engine.kind == "none" else engine.version or support.newest[engine.kind]
    return Situation(
        loaded=loaded,
        checkpoint=checkpoint,
        hardware=hardware,
        support=support,
        gpu=find_gpu(loaded, hardware),
        version=version,
        row=support.find(engine.kind, version, checkpoint.architectures),
    )


def find_gpu(loaded: LoadedSettings, hardware: Hardware) -> GpuPresence:
    """Take the GPUs that the settings declare before those that the machine shows."""
    gpu = loaded.settings.gpu
    total = gpu.total_mib or _probed_total(hardware, gpu.ids)
    if gpu.ids is not None:
        source = str(loaded.origin("gpu.ids"))
        if not gpu.ids:
            return GpuPresence(False, source, "gpu.ids declares none", None)
        return GpuPresence(True, source, "declared by gpu.ids", total)
    if gpu.total_mib is not None and not hardware.gpus:
        source = str(loaded.origin("gpu.total_mib"))
        return GpuPresence(True, source, "declared by gpu.total_mib", total)
    return GpuPresence(bool(hardware.gpus), "hardware", hardware.gpu_source, total)


def _probed_total(hardware: Hardware, ids: tuple[str, ...] | None) -> int | None:
    """Give the memory of the first GPU, or of the first that `ids` names."""
    gpus = [gpu for gpu in hardware.gpus if not ids or _is_named(gpu, ids[0])]
    return gpus[0].total_mib if gpus else None


def _is_named(gpu: Gpu, name: str) -> bool:
    return name == str(gpu.index) or (gpu.uuid is not None and gpu.uuid == name)
