"""SGLang's own rule for the memory it takes, as its arg_groups/memory_hook.py has it. Pure.

Run in the engine itself for the sizes in tests/unit/test_sglang_share.py. What the rule leaves
outside the static pool is for graphs, communication and activations, and for a vision model a
share more. It never looks at the number of tokenizer workers.
"""

from __future__ import annotations

from dataclasses import dataclass

from kimi_serve.schemas.limits import VisionTower

# Below so many MiB of GPU memory: the tokens of a prefill chunk, and the largest batch that is
# captured as a graph with fewer than four tensor ranks and with more.
_TIERS = (
    (20 * 1024, 2048, 8, 8),
    (35 * 1024, 4096, 48, 160),
    (60 * 1024, 4096, 32, 160),
    (160 * 1024, 8192, 256, 512),
    (None, 16384, 512, 512),
)
_METADATA_MIB = 512
_LEAST_TOKENS = 2048
LEAST_ACTIVATIONS_MIB = _LEAST_TOKENS * 3 // 2
_LARGE_GPU_MIB = 60 * 1024
_LARGE_RESERVE_MIB = 10 * 1024


@dataclass(frozen=True, slots=True)
class EngineShape:
    """What the rule looks at; None is the engine's default for this size of GPU."""

    total_mib: int
    tensor: int = 1
    pipeline: int = 1
    chunk: int | None = None
    graph_batch: int | None = None
    max_running: int | None = None
    has_graphs: bool = True


@dataclass(frozen=True, slots=True)
class EngineReserve:
    """What the engine sets aside beside its pool, with the arithmetic of both parts."""

    graphs_mib: int
    activations_mib: int
    graphs: str
    activations: str

    @property
    def total_mib(self) -> int:
        return self.graphs_mib + self.activations_mib


def reserve(shape: EngineShape) -> EngineReserve:
    """Compute what the engine expects to need beside weights and cache.

    The graphs of prefill, about 1.5 GiB where they are on, are not in it: the engine takes them
    off the pool as well, so that what is left for workers is nearly the same.
    """
    chunk, batch = _defaults(shape)
    graphs = batch * 2 if shape.has_graphs else 0
    ranks = shape.tensor * shape.pipeline
    fixed = _METADATA_MIB + graphs + ranks * 128
    tokens = max(chunk, _LEAST_TOKENS)
    activations = tokens * 3 // 2
    told = f"{tokens} tokens of a prefill chunk x 1.5"
    if shape.total_mib > _LARGE_GPU_MIB and fixed + activations < _LARGE_RESERVE_MIB:
        activations = _LARGE_RESERVE_MIB - fixed
        told = f"the rest of {_LARGE_RESERVE_MIB}, the least on a GPU of this size"
    captured = f" + batches up to {batch} x 2" if shape.has_graphs else ""
    return EngineReserve(
        fixed,
        activations,
        f"{_METADATA_MIB}{captured} + {ranks} x 128 for communication",
        told,
    )


def automatic_share(shape: EngineShape, tower: VisionTower | None) -> tuple[float, str]:
    """Compute the share that the engine takes by itself, and say how; `tower` sees images."""
    reserved = reserve(shape).total_mib
    share = round((shape.total_mib - reserved) / shape.total_mib, 3)
    told = f"1 - {reserved} / {shape.total_mib}"
    if tower is None:
        return share, f"{share:.3f} = {told}"
    factor = vision_factor(tower)
    share *= factor
    return share, f"{share:.3f} = ({told}) x {factor:.4f} for the vision tower"


def vision_factor(tower: VisionTower) -> float:
    """Compute what a vision model's share is multiplied by; a tower like ViT-L/14 has 0.95."""
    complexity = tower.layers * tower.width**2 / (24 * 1024**2)
    return 0.95 * max(0.8, min(1.05, 1.0 - 0.1 * (complexity - 1.0)))


def _defaults(shape: EngineShape) -> tuple[int, int]:
    fitting = (tier for tier in _TIERS if tier[0] is None or shape.total_mib < tier[0])
    _, chunk, few, many = next(fitting)
    batch = shape.graph_batch
    if batch is None:
        batch = few if shape.tensor < 4 else many
        batch = min(batch, shape.max_running) if shape.max_running is not None else batch
    return (chunk if shape.chunk is None else shape.chunk), batch
