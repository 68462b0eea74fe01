"""Whether the workers fit: CUDA contexts against GPU memory (KS301, KS302), shares of a budget
(KS304), threads against cores (KS305), and the share that the engine takes (KS303).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

from kimi_serve.schemas.findings import Finding, Severity
from kimi_serve.schemas.limits import load_limits
from kimi_serve.schemas.patch_bound import max_patches, patch_bytes

from ..resolver.devices import decide_devices
from ..resolver.engine_view import Given
from ..resolver.situation import FLAG, WORKER_NUM, Situation
from .transport import FEATURE_CACHE_MIB, gpu_transport
from .wording import at

FRACTION = "gpu.mem_fraction_static"
_EXTERNAL = "SGLANG_EXTERNAL_MM_PROCESSOR_PACKAGE"
_LARGE = 0.9


def context_findings(situation: Situation) -> Iterator[Finding]:
    """Say what the workers' CUDA contexts take of the first GPU (KS301, KS302)."""
    # SGLang alone gives every tokenizer worker a CUDA context; vLLM keeps them to one process.
    if situation.kind != "sglang" or situation.num_workers < 2:
        return
    if not decide_devices(situation).uses_gpu:
        return
    total, fraction = situation.gpu.total_mib, _fraction(situation)
    if total is None or fraction is None:
        yield _shared_finding(situation)
        yield _uncomputed_finding(situation, total, fraction)
        return
    room = free_mib(total, fraction)
    if situation.num_workers * situation.settings.gpu.worker_context_mib > room:
        yield _headroom_finding(situation, room)


def _fraction(situation: Situation) -> float | None:
    given = situation.given(FRACTION)
    try:
        fraction = None if given is None else float(given.text)
    except ValueError:
        return None
    return fraction if fraction is not None and 0 < fraction < 1 else None


def free_mib(total_mib: int, fraction: float) -> Fraction:
    """Give the memory outside the static pool; exact, as 1 - 0.9 in binary is less than 0.1."""
    return total_mib * (1 - Fraction(str(fraction)))


def _workers(situation: Situation) -> Given:
    path = WORKER_NUM
    return situation.given(path) or Given(path, "1", situation.origin(path), path)


def _headroom_finding(situation: Situation, room: Fraction) -> Finding:
    context = situation.settings.gpu.worker_context_mib
    fitting = int(room // context)
    fits = f"at most {fitting} fit" if fitting else "not even one fits"
    lower = f"lower {WORKER_NUM} to {fitting}" if fitting else f"lower {FRACTION}"
    message = (
        f"{_contexts(situation)} on the first GPU against {_gib(room)} outside the static pool: "
        f"{fits}"
    )
    return at("KS301", _workers(situation), message, f"{lower}, or {_remedy(situation)}")


def _shared_finding(situation: Situation) -> Finding:
    message = f"{situation.num_workers} workers share image preprocessing on the first GPU"
    return at("KS302", _workers(situation), message, _remedy(situation))


def _uncomputed_finding(situation: Situation, total: int | None, fraction: float | None) -> Finding:
    unknown = {"gpu.total_mib": total, FRACTION: fraction}
    missing = " and ".join(name for name, value in unknown.items() if value is None)
    message = (
        f"{_contexts(situation)} on the first GPU, outside the share that the engine takes; "
        f"whether that fits cannot be computed without {missing}"
    )
    return at("KS301", _workers(situation), message, f"{_remedy(situation)}, or set {missing}")


def _contexts(situation: Situation) -> str:
    context = situation.settings.gpu.worker_context_mib
    total = Fraction(situation.num_workers * context)
    return f"{situation.num_workers} x {context} MiB = {_gib(total)} of contexts"


def _gib(mib: Fraction) -> str:
    return f"{float(mib / 1024):.1f} GiB"


def _remedy(situation: Situation) -> str:
    row = situation.row
    if row is None or row.flag == "honoured":
        return f"set {FLAG}: true"
    if row.preprocess == "cuda" and not row.force_preprocess:
        return "serve this model with fewer workers: nothing keeps it off the GPU"
    ways = dict.fromkeys(filter(None, (row.force_decode, row.force_preprocess)))
    return f"keep images off the GPU ({'; '.join(ways)}): this model ignores {FLAG}"


def fraction_findings(situation: Situation) -> Iterator[Finding]:
    """Say where the pinned share leaves no room, or hardly uses the GPU (KS303)."""
    given, fraction = situation.given(FRACTION), _fraction(situation)
    if situation.kind == "none" or given is None or fraction is None:
        return
    highest = _automatic(situation)
    if fraction < 0.3:
        message = f"{given.name} {given.text} leaves most of the GPU to nobody"
        yield at("KS303", given, message, "remove it to let the engine choose")
    elif fraction > 0.95:
        message = f"{given.name} {given.text} leaves too little for graphs, images and contexts"
        yield at("KS303", given, message, "remove it to let the engine choose")
    elif highest is not None and fraction > highest:
        message = (
            f"{given.name} {given.text} is pinned above the {highest} that {situation.engine_name} "
            f"takes at most by itself for {situation.architecture}: encoder and image workers "
            "need the difference"
        )
        help = "remove it, lower it when images run out of memory, or set gpu.total_mib"
        yield at("KS303", given, message, help, severity=_above_automatic(situation, fraction))


def _automatic(situation: Situation) -> float | None:
    """The engine's own share at most; None where the room is computed instead (KS301)."""
    if situation.checkpoint is None or not situation.has_images:
        return None
    if situation.gpu.total_mib is not None or not situation.gpu.is_present:
        return None
    if situation.flag("--language-only"):
        return None
    row = load_limits().fraction(situation.kind, situation.version, situation.architectures)
    return None if row is None else row.highest


def _above_automatic(situation: Situation, fraction: float) -> Severity:
    is_replaced = situation.variable(_EXTERNAL) is not None
    return "info" if fraction < _LARGE or is_replaced else "warning"


def split_findings(situation: Situation) -> Iterator[Finding]:
    """Say where a worker's share of a budget holds no image (KS304)."""
    resize = situation.checkpoint.resize if situation.checkpoint is not None else None
    if situation.kind != "sglang" or resize is None:
        return
    image_mib = Fraction(max_patches(resize) * patch_bytes(resize, "float32"), 2**20)
    transport = gpu_transport(situation)
    pool = situation.variable("SGLANG_MM_FEATURE_CACHE_MB")
    if transport is not None:
        total = situation.whole(pool) if pool is not None else FEATURE_CACHE_MIB
        yield from _share(situation, pool or transport, "the feature pool", total, image_mib)
    cache = situation.flag("--mm-preprocess-cache-size-mb")
    if cache is not None and cache.text != "0":
        yield from _share(situation, cache, "the cache", situation.whole(cache), image_mib)


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
