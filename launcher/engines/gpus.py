"""Which GPUs an engine is given: gpu.ids as CUDA_VISIBLE_DEVICES, where the engine fits on them."""

from __future__ import annotations

from dataclasses import dataclass

from kimi_serve.schemas.engine_names import VISIBLE

from ..resolver.engine_view import Given
from ..resolver.situation import Situation
from . import common
from .writer import Writer

IDS = "gpu.ids"
# The flags that say over how many GPUs an engine spreads: tensor, pipeline, replicas.
WIDTHS = {
    "sglang": ("--tp-size", "--pp-size", "--dp-size"),
    "vllm": ("--tensor-parallel-size", "--pipeline-parallel-size", "--data-parallel-size"),
}
# One process group a node, or replicas elsewhere: the product says nothing about this machine.
_ELSEWHERE = (
    "--use-ray",
    "--distributed-executor-backend",
    "--data-parallel-backend",
    "--data-parallel-rank",
    "--data-parallel-start-rank",
    "--data-parallel-address",
    "--data-parallel-hybrid-lb",
    "--data-parallel-external-lb",
    "--data-parallel-multi-port-external-lb",
    "--data-parallel-size-local",
)


@dataclass(frozen=True, slots=True)
class Needed:
    """How many GPUs the engine takes on this machine. `asked` are the flags that say it."""

    number: int
    asked: tuple[Given, ...]


def needed_gpus(situation: Situation) -> Needed | None:
    """Give what the engine takes here; None where its arguments alone do not say that."""
    device = situation.flag("--device")
    is_elsewhere = any(situation.flag(flag) for flag in _ELSEWHERE)
    if is_elsewhere or (device is not None and not device.text.startswith("cuda")):
        return None
    asked = [each for flag in WIDTHS[situation.kind] if (each := _width(situation, flag))]
    number = 1
    for each in asked:
        number *= situation.whole(each) or 1
    return Needed(max(1, number // max(1, common.node_count(situation))), tuple(asked))


def _width(situation: Situation, flag: str) -> Given | None:
    """Give a width that multiplies; SGLang's attention groups lie inside the tensor group."""
    if flag == "--dp-size" and situation.flag("--enable-dp-attention"):
        return None
    return situation.flag(flag)


def write_gpus(writer: Writer) -> None:
    """Say the GPUs of the settings, unless somebody says others or the engine needs more."""
    situation = writer.situation
    ids = situation.settings.gpu.ids
    if ids is None or not situation.is_set(IDS) or situation.variable(VISIBLE) is not None:
        return
    needed = needed_gpus(situation)
    if not ids or (needed is not None and needed.number <= len(ids)):
        reason = "the engine sees these GPUs and no others"
        writer.variable(VISIBLE, IDS, reason if ids else "no GPU is declared", ",".join(ids))
