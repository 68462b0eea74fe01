"""Reads the terms of the memory budget from a situation: one arithmetic for rules and plan."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from kimi_serve.preprocess.cuda.memory import largest_peak_bytes
from kimi_serve.schemas.budget import BudgetRow, GpuBudget, MemoryBudget
from kimi_serve.schemas.engine_names import KIMI
from kimi_serve.schemas.hardware import Gpu

from ..budget.images import MIB, ImageWork, work_formula, work_mib
from ..engines.common import node_rank
from ..engines.gpus import WIDTHS
from ..resolver.situation import FLAG, Situation
from .engine_memory import FRACTION, TOTAL, engine_rows
from .image_work import workers_prepare_images
from .transport import FEATURE_CACHE, FEATURE_CACHE_MIB, gpu_transport
from .wording import json_object

CONTEXT = "gpu.worker_context_mib"
WORKER_BUDGET = "gpu.worker_budget_mib"
# Their processors take the current device, the first, whatever --base-gpu-id says.
_FIRST_GPU_ONLY = KIMI


def memory_budget(situation: Situation) -> MemoryBudget | None:
    """Compute what the launch takes of its GPUs.

    None where there is no GPU, for a model that the support table does not have, and for built-in
    workers that have nothing to do there.
    """
    if not situation.gpu.is_present or situation.row is None or not situation.has_images:
        return None
    if situation.kind == "none" and not _may_use_gpu(situation, forced=False):
        return None
    places = _places(situation)
    gpus = tuple(_gpu_budget(situation, place) for place in places)
    return MemoryBudget(gpus, _others(situation, places), _flag(situation, gpus))


def _may_use_gpu(situation: Situation, *, forced: bool) -> bool:
    """Whether workers prepare images on a GPU, with the flag off or on."""
    row = situation.row
    if row is None or not _has_workers(situation):
        return False
    if situation.kind == "none" and situation.hardware and not situation.has_gpu_extra:
        return False
    is_kept_off = forced and row.flag == "honoured"
    return "cuda" in (row.decode, row.preprocess) and not is_kept_off


def _has_workers(situation: Situation) -> bool:
    """Whether workers prepare images on this machine: the first of several answers clients."""
    return node_rank(situation) == 0 and workers_prepare_images(situation)


def _flag(
    situation: Situation, gpus: tuple[GpuBudget, ...]
) -> Literal["would save", "saves", "ignored", "needless"]:
    if not any(gpu.unforced_worker_mib for gpu in gpus):
        return "needless"
    if all(gpu.unforced_worker_mib == gpu.forced_worker_mib for gpu in gpus):
        return "ignored"
    return "saves" if situation.is_forced else "would save"


def _places(situation: Situation) -> tuple[int, ...]:
    """Give the positions, among the visible GPUs, that differ: images, feature pool, engine."""
    places = {*_image_places(situation), *_pool_places(situation), _base(situation)}
    return tuple(sorted(places, key=lambda place: (not _worker_touches(situation, place), place)))


def _worker_touches(situation: Situation, place: int) -> bool:
    return place in _image_places(situation) or place in _pool_places(situation)


def _base(situation: Situation) -> int:
    is_sglang = situation.kind == "sglang"
    return max(0, situation.whole_flag("--base-gpu-id", 0)) if is_sglang else 0


def _engine_places(situation: Situation) -> tuple[int, ...]:
    """Give the positions that the engine's ranks take on this machine."""
    if situation.kind == "none":
        return (0,)
    ranks = 1
    for name in WIDTHS[situation.kind][:2]:
        ranks *= max(1, situation.whole_flag(name, 1))
    nodes = situation.whole(situation.given("engine.nodes.count")) or 1
    step = max(1, situation.whole_flag("--gpu-id-step", 1)) if situation.kind == "sglang" else 1
    here = max(1, ranks // max(1, nodes))
    return tuple(_base(situation) + step * rank for rank in range(here))


def _image_places(situation: Situation) -> tuple[int, ...]:
    """Give the positions where a worker opens a context for images, with the flag off."""
    row = situation.row
    if row is None or not _may_use_gpu(situation, forced=False):
        return ()
    if situation.kind == "none" or situation.is_one_of(_FIRST_GPU_ONLY):
        return (0,)
    # JPEG is decoded on the current device; transformers' processors are told the base GPU.
    decode = (0,) if row.decode == "cuda" else ()
    preprocess = (_base(situation),) if row.preprocess == "cuda" else ()
    return tuple(dict.fromkeys((*preprocess, *decode)))


def _pool_places(situation: Situation) -> tuple[int, ...]:
    """Give where the workers hold features on a GPU, which opens a context as they start."""
    is_there = situation.kind == "sglang" and _has_workers(situation)
    return (_base(situation),) if is_there and gpu_transport(situation) else ()


def _gpu_budget(situation: Situation, place: int) -> GpuBudget:
    total, source = _total(situation, place)
    rows: list[BudgetRow] = []
    if place in _engine_places(situation) and (situation.kind != "none" or _shares(situation)):
        rows += engine_rows(situation, total)
    rows += _in_use(situation, place)
    if place in _pool_places(situation):
        rows.append(_pool_row(situation))
    forced, unforced = (_worker_mib(situation, place, forced=each) for each in (True, False))
    planned = forced if situation.is_forced else unforced
    if planned:
        rows += _worker_rows(situation, place)
    return GpuBudget(
        name=_name(situation, place),
        total_mib=total,
        total_source=source,
        rows=tuple(rows),
        workers=situation.num_workers,
        worker_mib=planned,
        unforced_worker_mib=unforced,
        forced_worker_mib=forced,
    )


def _shares(situation: Situation) -> bool:
    """Whether the settings say that somebody else's engine has a share of the first GPU."""
    return situation.given(FRACTION) is not None


def _in_use(situation: Situation, place: int) -> Iterator[BudgetRow]:
    """Tell what others hold. Beside a planned engine it is not counted: it may be that engine."""
    gpu = _gpu(situation, place)
    if gpu is None or gpu.total_mib is None or gpu.free_mib is None:
        return
    if situation.is_set(TOTAL) and place == 0:
        return
    counted = situation.kind == "none" and not _shares(situation)
    size = gpu.total_mib - gpu.free_mib
    formula = "by all processes" if counted else "by all processes, the engine too if it runs"
    yield BudgetRow("in use now", size, formula, "NVML", is_counted=counted)


def _pool_row(situation: Situation) -> BudgetRow:
    given = situation.variable(FEATURE_CACHE)
    size = FEATURE_CACHE_MIB if given is None else situation.whole(given)
    source = f"the default of {situation.engine_name}" if given is None else str(given.origin)
    formula = f"{FEATURE_CACHE}, shared by {situation.num_workers} workers"
    return BudgetRow("feature pool", size, formula, source)


def _worker_mib(situation: Situation, place: int, *, forced: bool) -> int:
    """Give what one worker takes there, with the flag off or on."""
    context = situation.settings.gpu.worker_context_mib
    if place in _image_places(situation) and _may_use_gpu(situation, forced=forced):
        return context + _images_mib(situation)[0]
    # The feature pool is opened whatever the flag says.
    return context if place in _pool_places(situation) else 0


def _worker_rows(situation: Situation, place: int) -> Iterator[BudgetRow]:
    workers, context = situation.num_workers, situation.settings.gpu.worker_context_mib
    formula = f"{workers} x {context}"
    yield BudgetRow(
        "contexts", workers * context, formula, str(situation.origin(CONTEXT)), grows=True
    )
    if place in _image_places(situation) and _may_use_gpu(situation, forced=situation.is_forced):
        size, told, source = _images_mib(situation)
        text = f"{workers} x {size}: {told}"
        yield BudgetRow("images", workers * size, text, source, grows=True)


def _images_mib(situation: Situation) -> tuple[int, str, str]:
    """Give what the images of one worker take, the arithmetic, and who says so."""
    settings = situation.settings
    cap = settings.gpu.worker_budget_mib
    if situation.kind == "none":
        needed = -(-largest_peak_bytes(settings.image.max_pixels) // MIB)
        if cap is not None and cap < needed:
            told = f"{WORKER_BUDGET}; larger images are prepared on the CPU"
            return cap, told, str(situation.origin(WORKER_BUDGET))
        told = f"image.max_pixels {settings.image.max_pixels} x 6 bytes and one strip"
        return needed, told, str(situation.origin("image.max_pixels"))
    resize = situation.checkpoint.resize if situation.checkpoint is not None else None
    jobs = max(1, situation.whole_flag("--mm-processor-worker-num", 1))
    work = ImageWork(settings.image.max_pixels, resize, jobs, _images_a_request(situation))
    told = f"{work_formula(work)}; the engine refuses none that are larger"
    return work_mib(work), told, str(situation.origin("image.max_pixels"))


def _images_a_request(situation: Situation) -> int:
    """Give the engine's limit; without one the budget is that of single images, and says so."""
    given = situation.flag("--limit-mm-data-per-request")
    number = json_object(given).get("image") if given is not None else None
    return number if isinstance(number, int) and number > 0 else 1


def _gpu(situation: Situation, place: int) -> Gpu | None:
    gpus = situation.gpu.gpus
    return gpus[place] if place < len(gpus) else None


def _name(situation: Situation, place: int) -> str:
    gpu = _gpu(situation, place)
    if gpu is None:
        return f"GPU {place}"
    is_slice = (gpu.uuid or "").startswith("MIG-")
    name = f"MIG slice of GPU {gpu.index}" if is_slice else f"GPU {gpu.index}"
    return f"{name}, {gpu.name}" if gpu.name else name


def _total(situation: Situation, place: int) -> tuple[int | None, str]:
    """Give the size of a GPU, and who says so or why nobody does."""
    gpu, declared = _gpu(situation, place), situation.settings.gpu.total_mib
    if declared is not None and (place == 0 or gpu is None or gpu.total_mib is None):
        alike = "" if place == 0 else ", of the first GPU"
        return declared, f"{situation.origin(TOTAL)}{alike}"
    if gpu is None:
        return None, f"{situation.gpu.reason}: set {TOTAL}"
    if gpu.total_mib is not None:
        return gpu.total_mib, "NVML"
    if gpu.memory_fault:
        name = gpu.name or f"GPU {gpu.index}"
        return None, f"NVML does not tell the memory of {name} ({gpu.memory_fault}): set {TOTAL}"
    if gpu.name is not None:
        return None, f"{gpu.name} reports no memory of its own: set {TOTAL}"
    return None, f"the driver was not asked ({situation.gpu.reason}): set {TOTAL}"


def _others(situation: Situation, places: tuple[int, ...]) -> str:
    """Name the engine's GPUs that no worker touches."""
    rest = [place for place in _engine_places(situation) if place not in places]
    if not rest:
        return ""
    noun = "GPU" if len(rest) == 1 else "GPUs"
    return f"{len(rest)} more {noun} with the engine alone"


def remedy(situation: Situation) -> str:
    """Say what takes the workers off the GPU."""
    row = situation.row
    if row is None or row.flag == "honoured":
        if situation.is_forced:
            return "set --mm-feature-transport cpu"  # what is left are the feature pools
        return f"set {FLAG}: true"
    if row.preprocess == "cuda" and not row.force_preprocess:
        return "serve this model with fewer workers: nothing keeps it off the GPU"
    ways = dict.fromkeys(filter(None, (row.force_decode, row.force_preprocess)))
    return f"keep images off the GPU ({'; '.join(ways)}): this model ignores {FLAG}"
