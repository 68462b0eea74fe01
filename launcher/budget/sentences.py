"""What is said about a budget: the arithmetic of one GPU, and the verdict."""

from __future__ import annotations

from kimi_serve.schemas.budget import GpuBudget, MemoryBudget
from kimi_serve.schemas.vocabulary import FORCE_CPU


def gib(mib: int) -> str:
    """Write a size for people."""
    return f"{mib / 1024:.1f} GiB"


def workers_text(gpu: GpuBudget) -> str:
    """Write what the workers take: `16 x 800 MiB = 12.5 GiB of contexts and ...`."""
    parts: list[str] = []
    nouns = {"contexts": "of contexts", "images": "for images"}
    for row in gpu.rows:
        if row.name in nouns and row.mib is not None:
            each = row.mib // gpu.workers
            parts.append(f"{gpu.workers} x {each} MiB = {gib(row.mib)} {nouns[row.name]}")
    return " and ".join(parts)


def room_text(gpu: GpuBudget) -> str:
    """Write what is there for the workers, with what the rest takes."""
    pool = gpu.row("static pool")
    outside = gpu.total_mib
    if outside is None or gpu.room_mib is None:
        return "a room that is not known"
    told = "of memory"
    if pool is not None and pool.mib is not None:
        outside -= pool.mib
        told = "outside the static pool"
    taken = [
        f"{row.name} {gib(row.mib)}"
        for row in gpu.rows
        if row.mib and row.is_counted and not row.grows and row.name != "static pool"
    ]
    rest = f", less {', '.join(taken)} = {gib(gpu.room_mib)}" if taken else ""
    return f"{gib(outside)} {told}{rest}"


def largest_text(gpu: GpuBudget) -> str:
    """Say how many workers fit."""
    if not gpu.largest:
        return "not even one fits"
    return f"at most {gpu.largest} {'fits' if gpu.largest == 1 else 'fit'}"


def verdict(gpu: GpuBudget) -> str:
    """Say whether one GPU is enough, in one line."""
    if not gpu.worker_mib:
        return "no worker uses it"
    noun = "worker" if gpu.workers == 1 else "workers"
    if gpu.left_mib is None:
        return f"not known for {gpu.workers} {noun}, who take {gib(gpu.needed_mib)}"
    if gpu.left_mib < 0:
        return f"does not fit, {gib(-gpu.left_mib)} too much: {largest_text(gpu)}"
    tight = _tight(gpu)
    return f"fits, {gib(gpu.left_mib)} left: {largest_text(gpu)}{tight}"


def _tight(gpu: GpuBudget) -> str:
    """Say that a pinned share leaves less than the engine thinks it needs."""
    more = gpu.row("more activations")
    if more is None or more.mib is None or gpu.left_mib is None or gpu.left_mib >= more.mib:
        return ""
    return f"; tight: by its own estimate the engine needs {gib(more.mib)} more"


def flag_text(budget: MemoryBudget) -> str:
    """Say what the flag does to the budget."""
    match budget.flag:
        case "would save":
            return f"{FORCE_CPU} would save {gib(budget.saved_mib)}"
        case "saves":
            return f"{FORCE_CPU} saves {gib(budget.saved_mib)}"
        case "ignored":
            return f"{FORCE_CPU} saves nothing: this model ignores it"
        case "needless":
            return f"{FORCE_CPU} saves nothing: no worker would use a GPU"


def summary(budget: MemoryBudget) -> str:
    """Say in one sentence what the launch takes, whether it fits, and what the flag does."""
    gpu = budget.tightest
    if not gpu.worker_mib:
        return f"no worker takes memory of a GPU; {flag_text(budget)}"
    taken = f"{workers_text(gpu)} against {room_text(gpu)}"
    return f"{gpu.name}: {taken}: {verdict(gpu)}; {flag_text(budget)}"
