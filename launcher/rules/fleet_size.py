"""Whether there are as many GPUs as the engine is told to use (KS306)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kimi_serve.schemas.findings import Finding
from kimi_serve.schemas.provenance import Origin

from ..resolver.engine_view import Given
from ..resolver.situation import Situation
from .wording import at

_VISIBLE = "CUDA_VISIBLE_DEVICES"
_WIDTHS = {
    "sglang": ("--tp-size", "--pp-size", "--dp-size"),
    "vllm": ("--tensor-parallel-size", "--pipeline-parallel-size", "--data-parallel-size"),
}
# One process group a node, or replicas elsewhere: the product says nothing about this machine.
_ELSEWHERE = (
    "--use-ray",
    "--distributed-executor-backend",
    "--data-parallel-backend",
    "--data-parallel-rank",
    "--data-parallel-hybrid-lb",
    "--data-parallel-external-lb",
    "--data-parallel-size-local",
)


@dataclass(frozen=True, slots=True)
class _Visible:
    """How many GPUs the engine will see, and who says so."""

    number: int
    text: str
    origin: Origin | None


def gpu_findings(situation: Situation) -> Iterator[Finding]:
    """Say that more GPUs are asked for than the engine will see."""
    visible = _visible(situation)
    if visible is None or situation.kind == "none":
        return
    related = () if visible.origin is None else (visible.origin,)
    widths = [each for flag in _WIDTHS[situation.kind] if (each := _width(situation, flag))]
    numbers = [situation.whole(each) or 1 for each in widths]
    nodes = situation.whole(situation.given("engine.nodes.count")) or 1
    needed = _product(numbers) // max(1, nodes)
    is_here = not any(situation.flag(flag) for flag in _ELSEWHERE)
    if widths and is_here and needed > visible.number:
        asked = " x ".join(f"{each.name} {each.text}" for each in widths)
        message = f"{asked} needs {needed} GPUs a node, and there are {visible.number}: "
        given = widths[0].at_value
        yield at("KS306", given, message + visible.text, "lower one of them", related=related)
    base = situation.flag("--base-gpu-id")
    first = situation.whole(base)
    if base is not None and first is not None and first >= visible.number:
        message = (
            f"{base.name} {first} is outside the {visible.number} GPUs that the engine sees: "
            f"{visible.text}; it counts the visible ones from 0"
        )
        help = "write an index, not a physical id"
        yield at("KS306", base.at_value, message, help, related=related)


def _width(situation: Situation, flag: str) -> Given | None:
    """Give a width that multiplies; SGLang's attention groups lie inside the tensor group."""
    if flag == "--dp-size" and situation.flag("--enable-dp-attention"):
        return None
    return situation.flag(flag)


def _product(numbers: list[int]) -> int:
    product = 1
    for number in numbers:
        product *= number
    return product


def _visible(situation: Situation) -> _Visible | None:
    given = situation.variable(_VISIBLE)
    if given is not None and given.is_open:
        return None
    if given is not None and given.text.strip():
        names = [name for name in given.text.split(",") if name.strip()]
        return _Visible(len(names), f"{_VISIBLE} names them", given.origin)
    ids = situation.settings.gpu.ids
    if ids is not None:
        return _Visible(len(ids), "gpu.ids declares them", situation.origin("gpu.ids"))
    # An engine may be planned on a machine without a GPU for another one.
    if situation.hardware is not None and situation.hardware.gpus:
        hardware = situation.hardware
        return _Visible(len(hardware.gpus), hardware.gpu_source, None)
    return None


RULES = (gpu_findings,)
