"""What the engine itself takes of a GPU: its share, and what it needs beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from kimi_serve.schemas.budget import BudgetRow
from kimi_serve.schemas.limits import load_limits

from ..budget.sglang_share import (
    LEAST_ACTIVATIONS_MIB,
    EngineReserve,
    EngineShape,
    automatic_share,
    reserve,
)
from ..resolver.situation import Situation
from .image_work import text_only

FRACTION = "gpu.mem_fraction_static"
TOTAL = "gpu.total_mib"
# What changes the engine's reserve in ways that are not computed here.
_UNMODELLED = (
    "--attn-dp-size",
    "--enable-dp-attention",
    "--disaggregation-mode",
    "--moe-a2a-backend",
    "--cuda-graph-config",
    "--cuda-graph-bs",
    "--cuda-graph-bs-decode",
)
_MAX_PREFILL_TOKENS = 16384
_RULE = "memory_hook.py"


@dataclass(frozen=True, slots=True)
class Share:
    """The share of a GPU that the engine takes: exact, with its arithmetic and who says so.

    `value` is None where it cannot be known; `formula` says why.
    """

    value: Fraction | None
    formula: str
    source: str
    is_automatic: bool = False


def engine_rows(situation: Situation, total_mib: int | None) -> Iterator[BudgetRow]:
    """Give the terms of an engine on one of its GPUs."""
    share = static_share(situation, total_mib)
    if share.value is None or total_mib is None:
        yield BudgetRow("static pool", None, share.formula, share.source)
    else:
        size = int(share.value * total_mib)
        share_text = f"{float(share.value):.3g} x {total_mib}"
        formula = f"{share_text}: {share.formula}" if share.is_automatic else share_text
        yield BudgetRow("static pool", size, formula, share.source)
    if situation.kind != "sglang" or total_mib is None:
        return
    needs, why = _reserve(situation, total_mib)
    source = f"{situation.engine_name} {_RULE}"
    if needs is None:
        yield BudgetRow("graphs", None, why, source, is_counted=False)
        return
    yield BudgetRow("graphs", needs.graphs_mib, needs.graphs, source)
    yield from _activations(needs, source, is_pinned=not share.is_automatic)


def _activations(needs: EngineReserve, source: str, *, is_pinned: bool) -> Iterator[BudgetRow]:
    """Give what the engine estimates; a pinned share overrules it but for the least."""
    size, formula = needs.activations_mib, needs.activations
    if not is_pinned or size <= LEAST_ACTIVATIONS_MIB:
        yield BudgetRow("activations", size, formula, source)
        return
    least = f"the least that the engine sets aside; its estimate is {size}"
    yield BudgetRow("activations", LEAST_ACTIVATIONS_MIB, least, source)
    rest = size - LEAST_ACTIVATIONS_MIB
    told = f"the rest of {formula}: the pinned share overrules it"
    yield BudgetRow("more activations", rest, told, source, is_counted=False)


def static_share(situation: Situation, total_mib: int | None) -> Share:
    """Find the share: told, or what the engine takes by itself where that rule is known."""
    given = situation.given(FRACTION)
    if given is not None:
        value = exact_share(given.text)
        return Share(value, given.text if value else f"{given.name} is no share", str(given.origin))
    if situation.kind == "vllm":
        return _of_vllm(situation)
    return _automatic(situation, total_mib)


def exact_share(text: str) -> Fraction | None:
    """Read a share as it is written: 1 - 0.9 in binary is less than 0.1."""
    try:
        value = Fraction(text.strip())
    except (ValueError, ZeroDivisionError):
        return None
    return value if 0 < value < 1 else None


def knows_share(situation: Situation) -> bool:
    """Whether the share would be known if the size of the GPU were."""
    return static_share(situation, 2**20).value is not None


def _of_vllm(situation: Situation) -> Share:
    flag = situation.table.flag("--gpu-memory-utilization") if situation.table else None
    source = f"the default of {situation.engine_name}"
    if flag is None or flag.default is None:
        return Share(None, f"set {FRACTION}", source)
    return Share(exact_share(str(flag.default)), str(flag.default), source)


def _automatic(situation: Situation, total_mib: int | None) -> Share:
    source = f"{situation.engine_name} {_RULE}"
    tower = load_limits().tower(situation.kind, situation.version, situation.architectures)
    if tower is None:
        text = f"the engine chooses, and its rule for {situation.architecture} was not checked"
        return Share(None, f"{text}: set {FRACTION}", source)
    if total_mib is None:
        return Share(None, f"the engine chooses by the size of the GPU: set {TOTAL}", source)
    shape, why = engine_shape(situation, total_mib)
    if shape is None:
        return Share(None, f"{why}: set {FRACTION}", source)
    sees_images = not situation.flag("--language-only") and text_only(situation) is None
    share, told = automatic_share(shape, tower if sees_images else None)
    return Share(Fraction(str(share)), told, source, is_automatic=True)


def _reserve(situation: Situation, total_mib: int) -> tuple[EngineReserve | None, str]:
    shape, why = engine_shape(situation, total_mib)
    return (None if shape is None else reserve(shape)), why


def engine_shape(situation: Situation, total_mib: int) -> tuple[EngineShape | None, str]:
    """Read what the engine's rule looks at; None, and why, where it is not followed here."""
    for flag in _UNMODELLED:
        given = situation.flag(flag)
        if given is not None:
            return None, f"not computed with {given.name}"
    chunk = situation.whole(situation.flag("--chunked-prefill-size"))
    if chunk is not None and chunk <= 0:
        chunk = situation.whole_flag("--max-prefill-tokens", _MAX_PREFILL_TOKENS)
    batch = situation.flag("--cuda-graph-max-bs-decode") or situation.flag("--cuda-graph-max-bs")
    off = situation.flag("--disable-cuda-graph") or situation.flag("--disable-decode-cuda-graph")
    shape = EngineShape(
        total_mib=total_mib,
        tensor=max(1, situation.whole_flag("--tp-size", 1)),
        pipeline=max(1, situation.whole_flag("--pp-size", 1)),
        chunk=chunk,
        graph_batch=situation.whole(batch),
        max_running=situation.whole(situation.flag("--max-running-requests")),
        has_graphs=off is None,
    )
    return shape, ""
