"""The memory budget: which terms stand on which GPU, what fits, what the flag saves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from plan_factories import K3, QWEN, UNKNOWN, make_checkpoint, make_plan, only, rules
from recorded_nvml import DIVIDED, GB10, H100, H200, SLICE_1, SLICE_2, Device, RecordedNvml

from kimi_serve.launcher.budget.images import ImageWork, largest_image_mib, work_mib
from kimi_serve.launcher.budget.sentences import summary, verdict
from kimi_serve.launcher.machine.nvml import ask_driver
from kimi_serve.launcher.machine.visible_gpus import visible_gpus
from kimi_serve.schemas.budget import BudgetRow, GpuBudget, MemoryBudget
from kimi_serve.schemas.hardware import Gpu, Hardware
from kimi_serve.schemas.plan import LaunchPlan

FLAG = "image.force_cpu_preprocessing"
WORKERS = "tokenizer.worker_num"
SHARE = "gpu.mem_fraction_static"
SGLANG = {
    "engine.kind": "sglang",
    "engine.version": "0.5.23",
    "model.trust_remote_code": True,
    "gpu.total_mib": 81559,
    WORKERS: 16,
}


def machine(*devices: Device, visible: str | None = None) -> Hardware:
    """A machine as the probe finds it."""
    answer = ask_driver(RecordedNvml(*devices))
    found = answer.gpus or ()
    gpus = visible_gpus(found, visible)
    return Hardware(64.0, 2**20, gpus, answer.note, all_gpus=found)


def args(*words: str, **changes: Any) -> dict[str, Any]:
    return SGLANG | {"engine.args": words} | changes


def planned(given: dict[str, Any], **more: Any) -> tuple[LaunchPlan, MemoryBudget]:
    plan = make_plan(given, **more)
    assert plan.budget is not None
    return plan, plan.budget


def first(given: dict[str, Any], **more: Any) -> GpuBudget:
    return planned(given, **more)[1].gpus[0]


def sizes(gpu: GpuBudget) -> dict[str, int | None]:
    return {row.name: row.mib for row in gpu.rows if row.is_counted}


# Published incidents


@pytest.mark.parametrize("context", [628, 800, 830])
@pytest.mark.parametrize("share", [0.8, 0.85, 0.9])
@pytest.mark.parametrize("total", [81559, 97887, 143771])
def test_sixteen_workers_on_one_gpu_do_not_fit(context: int, share: float, total: int) -> None:
    """sgl-project/sglang#39148, with the contexts of #39334 and #39621."""
    given = {"gpu.total_mib": total, SHARE: share, "gpu.worker_context_mib": context}
    plan, budget = planned(args("--tp-size", "8") | given)
    assert budget.fits is False
    finding = only(plan, "KS301")
    assert f"16 x {context} MiB = " in finding.message
    assert "outside the static pool" in finding.message
    assert f"{FLAG}: true" in (finding.help or "")


@pytest.mark.parametrize(("total", "fitting"), [(81559, 3), (143771, 7), (183359, 8)])
def test_the_engines_own_share_does_not_count_workers(total: int, fitting: int) -> None:
    given = args("--tp-size", "8") | {"gpu.total_mib": total}
    gpu = first(given)
    assert (gpu.fits, gpu.largest) == (False, fitting)
    at_most = first(given | {WORKERS: fitting})
    assert (at_most.fits, at_most.largest) == (True, fitting)
    assert rules(make_plan(given | {WORKERS: fitting})) == []
    assert first(given | {WORKERS: fitting + 1}).fits is False


def test_the_flag_takes_all_of_it_away() -> None:
    _, without = planned(SGLANG)
    plan, budget = planned(SGLANG | {FLAG: True})
    assert without.flag == "would save"
    assert budget.flag == "saves"
    assert budget.saved_mib == without.saved_mib == 16 * (800 + 837)
    assert budget.fits is True
    assert "no worker takes memory of a GPU" in summary(budget)
    assert rules(plan) == []


# The terms


def test_a_pinned_share_overrules_the_estimate_but_for_the_least() -> None:
    gpu = first(SGLANG | {SHARE: 0.8, WORKERS: 2})
    assert sizes(gpu) == {
        "static pool": 65247,
        "graphs": 1152,
        "activations": 3072,
        "contexts": 1600,
        "images": 1674,
    }
    more = gpu.row("more activations")
    assert more is not None
    assert (more.mib, more.is_counted) == (9216, False)
    assert "tight: by its own estimate the engine needs 9.0 GiB more" in verdict(gpu)


def test_a_lower_share_never_fits_fewer_workers() -> None:
    fitting = [first(SGLANG | {SHARE: share / 100}).largest or 0 for share in range(99, 50, -1)]
    assert fitting == sorted(fitting)


def test_a_small_chunk_has_no_more_activations() -> None:
    gpu = first(args("--chunked-prefill-size", "1024", **{"gpu.total_mib": 40960, SHARE: 0.8}))
    assert gpu.row("more activations") is None
    off = first(args("--chunked-prefill-size", "-1", "--max-prefill-tokens", "4096"))
    assert sizes(off)["activations"] == 9088


def test_a_way_that_is_not_computed_is_said() -> None:
    gpu = first(args("--enable-dp-attention", "--dp-size", "8"))
    assert gpu.fits is None
    row = gpu.row("static pool")
    assert row is not None
    assert "not computed with --enable-dp-attention" in row.formula
    pinned = first(args("--enable-dp-attention", "--dp-size", "8", **{SHARE: 0.8}))
    assert "graphs" not in sizes(pinned)
    assert pinned.fits is False


def test_images_grow_with_pixels_threads_and_a_requests_images() -> None:
    resize = make_checkpoint().resize
    one = largest_image_mib(50_000_000, resize)
    assert one == 837
    assert largest_image_mib(1, None) == 1
    assert work_mib(ImageWork(50_000_000, resize, jobs=2, images=4)) == 8 * one
    given = args("--mm-processor-worker-num", "2", "--limit-mm-data-per-request", '{"image": 4}')
    row = first(given).row("images")
    assert row is not None
    assert row.mib == 16 * 8 * one
    assert "2 threads, 4 images a request" in row.formula
    small = first(args(**{"image.max_pixels": 1_000_000})).row("images")
    assert small is not None
    assert small.mib == 16 * 136


def test_a_checkpoint_without_limits_counts_pixels_alone() -> None:
    row = first(SGLANG | {SHARE: 0.8}, checkpoint=make_checkpoint(QWEN)).row("images")
    assert row is not None
    assert row.mib == 16 * 716
    assert "patches not counted" in row.formula


def test_the_feature_pool_is_one_for_all_and_opens_contexts_under_the_flag() -> None:
    given = args("--mm-feature-transport", "cuda_ipc", **{FLAG: True, WORKERS: 4})
    plan, budget = planned(given)
    assert sizes(budget.gpus[0])["feature pool"] == 1024
    assert sizes(budget.gpus[0])["contexts"] == 3200
    assert "images" not in sizes(budget.gpus[0])
    assert budget.saved_mib == 4 * 837
    large = {"engine.env": {"SGLANG_MM_FEATURE_CACHE_MB": "8192"}}
    assert sizes(first(given | large))["feature pool"] == 8192
    assert only(make_plan(given | large), "KS301").help == (
        "use a larger GPU, or set --mm-feature-transport cpu"
    )
    assert "KS301" not in rules(plan)


def test_a_model_that_ignores_the_flag_saves_nothing() -> None:
    given = SGLANG | {FLAG: True, SHARE: 0.9}
    _, budget = planned(given, checkpoint=make_checkpoint(K3))
    assert (budget.flag, budget.saved_mib, budget.fits) == ("ignored", 0, False)
    assert "this model ignores it" in summary(budget)


def test_vllm_keeps_its_servers_off_the_gpu() -> None:
    given = {"engine.kind": "vllm", "engine.version": "0.33.0", "gpu.total_mib": 81920, WORKERS: 8}
    _, budget = planned(given)
    assert budget.flag == "needless"
    assert sizes(budget.gpus[0]) == {"static pool": 75366}  # 0.92, its default
    assert sizes(first(given | {SHARE: 0.5})) == {"static pool": 40960}


@pytest.mark.parametrize(
    "given",
    [
        {},
        SGLANG | {"gpu.ids": (), "gpu.total_mib": None},
        SGLANG | {"engine.env": {"CUDA_VISIBLE_DEVICES": ""}},
        SGLANG | {"engine.env": {"CUDA_VISIBLE_DEVICES": "-1"}},
    ],
)
def test_no_gpu_no_budget(given: dict[str, Any]) -> None:
    plan = make_plan(given)
    assert plan.budget is None
    assert plan.decode_device.value == "cpu"


def test_nothing_is_said_of_an_unknown_model() -> None:
    assert make_plan(SGLANG, checkpoint=make_checkpoint(UNKNOWN)).budget is None


# The built-in workers

OWN = {WORKERS: 16}


def with_extra(*devices: Device) -> Hardware:
    return replace(machine(*devices), has_gpu_extra=True)


def test_the_built_in_workers_share_a_gpu_with_whoever_is_there() -> None:
    _, budget = planned(OWN, hardware=with_extra(replace(H100, used_mib=70000)))
    gpu = budget.gpus[0]
    assert sizes(gpu) == {"in use now": 70000, "contexts": 12800, "images": 16 * 339}
    assert (gpu.fits, gpu.largest) == (False, 10)
    assert budget.flag == "would save"
    assert planned(OWN, hardware=with_extra(H100))[1].fits is True


def test_the_built_in_workers_beside_a_declared_share() -> None:
    gpu = first(OWN | {SHARE: 0.9}, hardware=with_extra(replace(H100, used_mib=70000)))
    assert sizes(gpu)["static pool"] == 73403
    assert "in use now" not in sizes(gpu)
    plan, _ = planned(OWN | {SHARE: 0.9}, hardware=with_extra(H100))
    assert only(plan, "KS301").help == (f"lower {WORKERS} to 7, or set {FLAG}: true")


def test_a_cap_bounds_what_images_take() -> None:
    capped = first(OWN | {"gpu.worker_budget_mib": 128}, hardware=with_extra(H100))
    assert sizes(capped)["images"] == 16 * 128
    loose = first(OWN | {"gpu.worker_budget_mib": 4096}, hardware=with_extra(H100))
    assert sizes(loose)["images"] == 16 * 339


def test_the_built_in_workers_need_the_extra() -> None:
    assert make_plan(OWN, hardware=machine(H100)).budget is None


def test_forced_workers_still_show_what_the_flag_saves() -> None:
    _, budget = planned(OWN | {FLAG: True}, hardware=with_extra(H100))
    assert (budget.flag, budget.fits, budget.saved_mib) == ("saves", True, 16 * 1139)


# Which GPU

BARE = {key: value for key, value in SGLANG.items() if key != "gpu.total_mib"}
EIGHT = machine(*[H200] * 8)


def test_the_driver_says_size_name_and_what_is_in_use() -> None:
    gpu = first(BARE | {"engine.args": ("--tp-size", "8")}, hardware=EIGHT)
    assert (gpu.name, gpu.total_mib, gpu.total_source) == ("GPU 0, NVIDIA H200", 143771, "NVML")
    row = gpu.row("in use now")
    assert row is not None
    assert (row.mib, row.is_counted) == (585, False)
    _, budget = planned(BARE | {"engine.args": ("--tp-size", "8")}, hardware=EIGHT)
    assert budget.others == "7 more GPUs with the engine alone"


def test_kimi_prepares_images_on_the_first_gpu_whatever_the_base_is() -> None:
    """kimi_k25.py:116,139,504 take the current device."""
    words = ("--base-gpu-id", "4", "--tp-size", "4")
    _, budget = planned(BARE | {"engine.args": words}, hardware=EIGHT)
    images, engine = budget.gpus
    assert (images.name, engine.name) == ("GPU 0, NVIDIA H200", "GPU 4, NVIDIA H200")
    assert set(sizes(images)) == {"contexts", "images"}
    assert not engine.worker_mib
    assert "static pool" in sizes(engine)
    assert budget.others == "3 more GPUs with the engine alone"
    assert budget.tightest is images


def test_features_on_the_base_gpu_open_contexts_there_too() -> None:
    words = ("--base-gpu-id", "4", "--gpu-id-step", "2", "--tp-size", "2")
    given = BARE | {"engine.args": (*words, "--mm-feature-transport", "cuda_ipc")}
    _, budget = planned(given, hardware=EIGHT)
    images, pool = budget.gpus
    assert set(sizes(images)) == {"contexts", "images"}
    assert sizes(pool)["contexts"] == 12800
    assert sizes(pool)["feature pool"] == 1024
    assert budget.tightest is pool
    assert budget.others == "1 more GPU with the engine alone"


def test_other_models_split_decoding_and_preprocessing() -> None:
    given = BARE | {"engine.args": ("--base-gpu-id", "1"), SHARE: 0.8}
    _, budget = planned(given, hardware=EIGHT, checkpoint=make_checkpoint(QWEN))
    assert [gpu.name[:5] for gpu in budget.gpus] == ["GPU 0", "GPU 1"]
    assert all(gpu.worker_mib for gpu in budget.gpus)


def test_ranks_of_other_machines_are_not_here() -> None:
    words = ("--tp-size", "16", "--nnodes", "2", "--node-rank", "0", "--dist-init-addr", "a:1")
    _, budget = planned(BARE | {"engine.args": words}, hardware=EIGHT)
    assert budget.others == "7 more GPUs with the engine alone"


@pytest.mark.parametrize(
    ("visible", "name", "total"),
    [
        ("1", "GPU 1, NVIDIA H100 80GB HBM3", 81559),
        ("1,0", "GPU 1, NVIDIA H100 80GB HBM3", 81559),
        (H100.uuid, "GPU 1, NVIDIA H100 80GB HBM3", 81559),
        ("GPU-5a5c", "GPU 0, NVIDIA H200", 143771),
    ],
)
def test_the_engine_may_see_other_gpus_than_the_launcher(
    visible: str, name: str, total: int
) -> None:
    hardware = machine(H200, H100, visible="0")
    given = BARE | {"engine.env": {"CUDA_VISIBLE_DEVICES": visible}}
    gpu = first(given, hardware=hardware)
    assert (gpu.name, gpu.total_mib) == (name, total)
    seen = first(BARE, hardware=machine(H200, H100, visible=visible))
    assert (seen.name, seen.total_mib) == (name, total)


def test_gpus_that_the_engine_may_not_see() -> None:
    given = BARE | {"engine.env": {"CUDA_VISIBLE_DEVICES": "7"}}
    plan = make_plan(given, hardware=machine(H200))
    assert plan.budget is None
    assert "CUDA_VISIBLE_DEVICES='7' leaves none" in plan.decode_device.reason


def test_the_second_machine_has_no_workers() -> None:
    words = ("--tp-size", "16", "--nnodes", "2", "--node-rank", "1", "--dist-init-addr", "a:1")
    plan, budget = planned(BARE | {"engine.args": words}, hardware=EIGHT)
    assert not budget.gpus[0].worker_mib
    assert budget.flag == "needless"
    assert not [rule for rule in rules(plan) if rule in ("KS301", "KS302")]


def test_a_slice_that_the_settings_name() -> None:
    given = BARE | {"gpu.ids": (SLICE_2.uuid,)}
    assert first(given, hardware=machine(H100, DIVIDED)).total_mib == SLICE_2.total_mib


def test_gpus_by_index_and_uuid() -> None:
    hardware = machine(H200, H100)
    for ids in (("1",), (H100.uuid,), ("GPU-7b1e2d3c", "0")):
        assert first(BARE | {"gpu.ids": ids}, hardware=hardware).total_mib == 81559
    unseen = first(BARE | {"gpu.ids": ("3", "0")}, hardware=hardware)
    assert (unseen.name, unseen.total_mib, unseen.fits) == ("GPU 3", None, None)


def test_a_slice_is_a_gpu_of_its_own() -> None:
    given = BARE | {SHARE: 0.5, WORKERS: 2}
    gpu = first(given, hardware=machine(H100, DIVIDED))
    assert gpu.name == "MIG slice of GPU 1, NVIDIA H100 MIG 3g.40gb"
    assert gpu.total_mib == SLICE_1.total_mib
    small = machine(H100, DIVIDED, visible=SLICE_2.uuid)
    assert first(given, hardware=small).total_mib == SLICE_2.total_mib
    assert first(given, hardware=small).fits is False


def test_a_gpu_that_shares_the_machines_memory() -> None:
    plan, budget = planned(BARE, hardware=machine(GB10))
    gpu = budget.gpus[0]
    assert (gpu.total_mib, gpu.fits, gpu.largest) == (None, None, None)
    assert gpu.total_source == "NVIDIA GB10 reports no memory of its own: set gpu.total_mib"
    assert "not known for 16 workers, who take 25.6 GiB" in summary(budget)
    assert "gpu.total_mib" in only(plan, "KS302").message
    assert first(SGLANG, hardware=machine(GB10)).total_mib == 81559


def test_a_driver_that_nobody_asked() -> None:
    hardware = Hardware(8.0, 1024, (Gpu(0),), "1 device file (pynvml is not installed)")
    gpu = first(BARE, hardware=hardware)
    assert (gpu.name, gpu.total_mib) == ("GPU 0", None)
    assert "pynvml is not installed" in gpu.total_source


# The verdict


def make_gpu(total: int | None, *rows: BudgetRow, workers: int = 1, each: int = 0) -> GpuBudget:
    return GpuBudget("GPU 0", total, "here", rows, workers, each, each, each)


def test_arithmetic() -> None:
    pool = BudgetRow("static pool", 600, "", "")
    seen = BudgetRow("in use now", 300, "", "", is_counted=False)
    gpu = make_gpu(1000, pool, seen, workers=4, each=100)
    assert (gpu.fixed_mib, gpu.room_mib, gpu.needed_mib, gpu.left_mib) == (600, 400, 400, 0)
    assert (gpu.fits, gpu.largest) == (True, 4)
    over = make_gpu(500, pool, workers=1, each=100)
    assert (over.fits, over.largest, over.left_mib) == (False, 0, -200)
    unknown = make_gpu(1000, BudgetRow("static pool", None, "", ""), workers=1, each=1)
    assert (unknown.fits, unknown.largest, unknown.left_mib) == (None, None, None)
    idle = make_gpu(1000, pool)
    assert (idle.fits, idle.largest) == (True, None)


def test_the_tightest_gpu_decides() -> None:
    roomy, tight = (make_gpu(size, workers=1, each=100) for size in (1000, 150))
    blind, full, idle = make_gpu(None, each=1), make_gpu(50, each=100), make_gpu(10)
    for gpus, expected in (
        ((idle, roomy, tight), tight),
        ((roomy, blind), blind),
        ((blind, full, tight), full),
    ):
        budget = MemoryBudget(gpus, "", "would save")
        assert budget.tightest is expected
        assert budget.fits is expected.fits
