"""Whether the workers fit: what they take of the GPUs (KS301, KS302), shares of a budget (KS304),
threads against cores (KS305), and the share that the engine takes (KS303).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

from kimi_serve.schemas.budget import GpuBudget
from kimi_serve.schemas.findings import Finding, Severity
from kimi_serve.schemas.limits import load_limits

from ..budget.images import patches_mib
from ..budget.sentences import largest_text, room_text, workers_text
from ..resolver.engine_view import Given
from ..resolver.situation import WORKER_NUM, Situation
from .engine_memory import FRACTION, TOTAL, exact_share, knows_share, static_share
from .given import EXTERNAL_PROCESSOR
from .image_work import text_only, workers_prepare_images
from .memory import memory_budget, remedy
from .transport import FEATURE_CACHE, FEATURE_CACHE_MIB, gpu_transport
from .wording import at

_LARGE = 0.9


def context_findings(situation: Situation) -> Iterator[Finding]:
    """Say what the workers take of the GPUs (KS301, KS302)."""
    budget = memory_budget(situation) if situation.num_workers > 1 else None
    if budget is None or budget.fits:
        return
    gpu = budget.tightest
    if gpu.fits is None:
        if situation.kind != "none":
            yield _uncomputed_finding(situation, gpu)
    else:
        yield _headroom_finding(situation, gpu)


def _workers(situation: Situation) -> Given:
    path = WORKER_NUM
    given = situation.given(path) or Given(path, "1", situation.origin(path), path)
    return given.at_value


def _place(gpu: GpuBudget) -> str:
    return "the first GPU" if gpu.name.startswith("GPU 0") else gpu.name


def _headroom_finding(situation: Situation, gpu: GpuBudget) -> Finding:
    fitting = gpu.largest
    share = static_share(situation, gpu.total_mib)
    less = f"lower {FRACTION}" if not share.is_automatic else "use a larger GPU"
    lower = f"lower {WORKER_NUM} to {fitting}" if fitting else less
    message = f"{workers_text(gpu)} on {_place(gpu)} against {room_text(gpu)}: {largest_text(gpu)}"
    return at("KS301", _workers(situation), message, f"{lower}, or {remedy(situation)}")


def _uncomputed_finding(situation: Situation, gpu: GpuBudget) -> Finding:
    names = [TOTAL] if gpu.total_mib is None else []
    names += [] if knows_share(situation) else [FRACTION]
    missing = " and ".join(names) or FRACTION
    message = (
        f"{situation.num_workers} workers share image preprocessing on {_place(gpu)}: "
        f"{workers_text(gpu)} outside the share that the engine takes; whether that fits cannot "
        f"be computed without {missing}"
    )
    return at("KS302", _workers(situation), message, f"{remedy(situation)}, or set {missing}")


def fraction_findings(situation: Situation) -> Iterator[Finding]:
    """Say where the pinned share leaves no room, or hardly uses the GPU (KS303)."""
    given = situation.given(FRACTION)
    exact = None if given is None else exact_share(given.text)
    if situation.kind == "none" or given is None or exact is None:
        return
    fraction = float(exact)
    highest = _automatic(situation)
    if fraction < 0.3:
        message = f"{given.name} {given.text} leaves most of the GPU to nobody"
        yield at("KS303", given.at_value, message, "remove it to let the engine choose")
    elif fraction > 0.95:
        message = f"{given.name} {given.text} leaves too little for graphs, images and contexts"
        yield at("KS303", given.at_value, message, "remove it to let the engine choose")
    elif highest is not None and fraction > highest:
        message = (
            f"{given.name} {given.text} is pinned above the {highest} that {situation.engine_name} "
            f"takes at most by itself for {situation.architecture}: encoder and image workers "
            "need the difference"
        )
        help = "remove it, lower it when images run out of memory, or set gpu.total_mib"
        level = _above_automatic(situation, fraction)
        yield at("KS303", given.at_value, message, help, severity=level)


def _automatic(situation: Situation) -> float | None:
    """The engine's own share at most; None where the room is computed instead (KS301)."""
    if situation.checkpoint is None or not situation.has_images:
        return None
    if situation.gpu.total_mib is not None or not situation.gpu.is_present:
        return None
    if situation.flag("--language-only") or text_only(situation):
        return None
    row = load_limits().fraction(situation.kind, situation.version, situation.architectures)
    return None if row is None else row.highest


def _above_automatic(situation: Situation, fraction: float) -> Severity:
    is_replaced = situation.variable(EXTERNAL_PROCESSOR) is not None
    return "info" if fraction < _LARGE or is_replaced else "warning"


def split_findings(situation: Situation) -> Iterator[Finding]:
    """Say where a worker's share of a budget holds no image (KS304)."""
    resize = situation.checkpoint.resize if situation.checkpoint is not None else None
    if situation.kind != "sglang" or resize is None or not workers_prepare_images(situation):
        return
    image_mib = patches_mib(resize)
    transport = gpu_transport(situation)
    pool = situation.variable(FEATURE_CACHE)
    if transport is not None:
        total = situation.whole(pool) if pool is not None else FEATURE_CACHE_MIB
        given = pool.at_value if pool is not None else transport
        yield from _share(situation, given, "the feature pool", total, image_mib)
    cache = situation.flag("--mm-preprocess-cache-size-mb")
    if cache is not None and cache.text != "0":
        total = situation.whole(cache)
        yield from _share(situation, cache.at_value, "the cache", total, image_mib)


def _share(
    situation: Situation, given: Given, what: str, total: int | None, image_mib: Fraction
) -> Iterator[Finding]:
    workers = situation.num_workers
    if total is None or Fraction(total, workers) >= image_mib:
        return
    needed = math.ceil(image_mib * workers)
    message = (
        f"{what} of {total} MiB is {total // workers} MiB for each of {workers} workers, and the "
        f"largest image of this model takes {float(image_mib):.1f} MiB"
    )
    yield at("KS304", given, message, f"give it at least {needed} MiB, or run fewer workers")


def core_findings(situation: Situation) -> Iterator[Finding]:
    """Say that there are more threads than cores (KS305)."""
    if situation.hardware is None:
        return
    cpus, workers = situation.hardware.cpus, situation.num_workers
    help = f"more than about {max(1, math.ceil(cpus))} workers cost memory and bring no speed"
    if situation.kind == "none" and workers > 4 * cpus:
        message = f"{workers} workers, one thread each, share {cpus:g} CPUs"
        yield at("KS305", _workers(situation), message, help)
    # An engine may be planned on a machine that is not the one it will run on.
    elif situation.kind == "sglang" and situation.hardware.gpus:
        threads = situation.whole_flag("--mm-processor-worker-num", 0) or 1
        decoders = situation.whole_flag("--mm-io-worker-num", 0)
        if workers * (threads + decoders) > 4 * cpus:
            message = (
                f"{workers} workers with {threads + decoders} image threads each share {cpus:g} "
                "CPUs"
            )
            yield at("KS305", _workers(situation), message, help)


RULES = (context_findings, fraction_findings, split_findings, core_findings)
