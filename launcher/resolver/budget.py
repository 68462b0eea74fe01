"""Whether the workers fit: CUDA contexts against GPU memory, worker processes against cores."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

from kimi_serve.schemas.findings import Finding

from .devices import Devices
from .situation import FLAG, WORKER_NUM, Situation


def budget_findings(situation: Situation, devices: Devices) -> Iterator[Finding]:
    """Find what does not fit: GPU memory (KS301; KS302 where it is not known), cores (KS305)."""
    # SGLang alone gives every tokenizer worker a CUDA context; vLLM keeps them to one process.
    if situation.kind == "sglang" and situation.num_workers > 1 and devices.uses_gpu:
        yield from _gpu_findings(situation)
    # An engine may be planned on a machine that is not the one it will run on.
    if situation.kind == "none" and situation.num_workers > 4 * situation.hardware.cpus:
        yield _core_finding(situation)


def _gpu_findings(situation: Situation) -> Iterator[Finding]:
    gpu = situation.settings.gpu
    missing = [
        name
        for name, value in (
            ("gpu.total_mib", situation.gpu.total_mib),
            ("gpu.mem_fraction_static", gpu.mem_fraction_static),
        )
        if value is None
    ]
    if missing or situation.gpu.total_mib is None or gpu.mem_fraction_static is None:
        yield _uncomputed_finding(situation, missing)
        return
    room = free_mib(situation.gpu.total_mib, gpu.mem_fraction_static)
    if situation.num_workers * gpu.worker_context_mib > room:
        yield _headroom_finding(situation, room)


def free_mib(total_mib: int, fraction: float) -> Fraction:
    """Give the memory outside the static pool; exact, as 1 - 0.9 in binary is less than 0.1."""
    return total_mib * (1 - Fraction(str(fraction)))


def _headroom_finding(situation: Situation, room: Fraction) -> Finding:
    context = situation.settings.gpu.worker_context_mib
    fitting = int(room // context)
    fits = f"at most {fitting} fit" if fitting else "not even one fits"
    lower = f"lower {WORKER_NUM} to {fitting}" if fitting else "lower gpu.mem_fraction_static"
    return Finding(
        "KS301",
        "warning",
        f"{_contexts(situation)} on the first GPU against {_gib(room)} outside the static pool: "
        f"{fits}",
        situation.loaded.origin(WORKER_NUM),
        WORKER_NUM,
        help=f"{lower}, or {_remedy(situation)}",
    )


def _uncomputed_finding(situation: Situation, missing: list[str]) -> Finding:
    return Finding(
        "KS302",
        "warning",
        f"{situation.num_workers} workers share image preprocessing on the first GPU, "
        f"{_contexts(situation)}; whether that fits cannot be computed without "
        f"{' and '.join(missing)}",
        situation.loaded.origin(WORKER_NUM),
        WORKER_NUM,
        help=f"{_remedy(situation)}, or set {' and '.join(missing)}",
    )


def _core_finding(situation: Situation) -> Finding:
    cpus = situation.hardware.cpus
    return Finding(
        "KS305",
        "warning",
        f"{situation.num_workers} workers, one thread each, share {cpus:g} CPUs",
        situation.loaded.origin(WORKER_NUM),
        WORKER_NUM,
        help=f"more than about {max(1, math.ceil(cpus))} workers cost memory and bring no speed",
    )


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
