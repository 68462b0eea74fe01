"""The resolver: the whole product of its inputs, then each finding and refusal by itself."""

from __future__ import annotations

import dataclasses
import pickle
import subprocess
import sys
from base64 import b64encode
from typing import Any

import pytest
from plan_factories import (
    K3,
    K25,
    NO_GPU,
    ONE_GPU,
    QWEN,
    RESIZE,
    TEXT_ONLY,
    UNKNOWN,
    make_checkpoint,
    make_loaded,
    make_plan,
    only,
    rules,
)

from kimi_serve.schemas.errors import PlanError
from kimi_serve.schemas.findings import Finding
from kimi_serve.schemas.hardware import Gpu, Hardware
from kimi_serve.schemas.provenance import DEFAULT, Origin
from kimi_serve.schemas.worker import TokenizerSpec

FLAG = "image.force_cpu_preprocessing"

# engine, architecture, GPU, flag: devices, rules with 1 worker / rules with 16 workers
PRODUCT = """
none   K25     no-gpu off: cpu      -                              / -
none   K25     no-gpu on : cpu      KS202 KS209                    / KS202
none   K25     gpu    off: cpu      KS210                          / KS210
none   K25     gpu    on : cpu      KS209                          / -
none   K3      no-gpu off: refused  -                              / -
none   K3      no-gpu on : refused  -                              / -
none   K3      gpu    off: refused  -                              / -
none   K3      gpu    on : refused  -                              / -
none   QWEN    no-gpu off: refused  -                              / -
none   QWEN    no-gpu on : refused  -                              / -
none   QWEN    gpu    off: refused  -                              / -
none   QWEN    gpu    on : refused  -                              / -
none   TEXT    no-gpu off: refused  -                              / -
none   TEXT    no-gpu on : refused  -                              / -
none   TEXT    gpu    off: refused  -                              / -
none   TEXT    gpu    on : refused  -                              / -
none   UNKNOWN no-gpu off: refused  -                              / -
none   UNKNOWN no-gpu on : refused  -                              / -
none   UNKNOWN gpu    off: refused  -                              / -
none   UNKNOWN gpu    on : refused  -                              / -
sglang K25     no-gpu off: cpu      KS105                          / KS105
sglang K25     no-gpu on : cpu      KS105 KS202 KS209              / KS105 KS202
sglang K25     gpu    off: cuda     KS105                          / KS105 KS302
sglang K25     gpu    on : cpu      KS105 KS209                    / KS105
sglang K3      no-gpu off: cpu      -                              / -
sglang K3      no-gpu on : cpu      KS201                          / KS201
sglang K3      gpu    off: cuda     -                              / KS302
sglang K3      gpu    on : cuda     KS201                          / KS201 KS302
sglang QWEN    no-gpu off: cpu      -                              / -
sglang QWEN    no-gpu on : cpu      KS201                          / KS201
sglang QWEN    gpu    off: cuda     -                              / KS302
sglang QWEN    gpu    on : cuda     KS201                          / KS201 KS302
sglang TEXT    no-gpu off: cpu      -                              / -
sglang TEXT    no-gpu on : cpu      KS206                          / KS206
sglang TEXT    gpu    off: cpu      -                              / -
sglang TEXT    gpu    on : cpu      KS206                          / KS206
sglang UNKNOWN no-gpu off: cpu      KS201                          / KS201
sglang UNKNOWN no-gpu on : cpu      KS201                          / KS201
sglang UNKNOWN gpu    off: unknown  KS201                          / KS201
sglang UNKNOWN gpu    on : unknown  KS201                          / KS201
vllm   K25     no-gpu off: cpu      -                              / KS202 KS202
vllm   K25     no-gpu on : cpu      KS201                          / KS201 KS202 KS202
vllm   K25     gpu    off: cpu      -                              / KS202 KS202
vllm   K25     gpu    on : cpu      KS201                          / KS201 KS202 KS202
vllm   K3      no-gpu off: cpu      -                              / KS202 KS202
vllm   K3      no-gpu on : cpu      KS201                          / KS201 KS202 KS202
vllm   K3      gpu    off: cpu      -                              / KS202 KS202
vllm   K3      gpu    on : cpu      KS201                          / KS201 KS202 KS202
vllm   QWEN    no-gpu off: cpu      -                              / KS202 KS202
vllm   QWEN    no-gpu on : cpu      KS201                          / KS201 KS202 KS202
vllm   QWEN    gpu    off: cpu      -                              / KS202 KS202
vllm   QWEN    gpu    on : cpu      KS201                          / KS201 KS202 KS202
vllm   TEXT    no-gpu off: cpu      -                              / KS202 KS202
vllm   TEXT    no-gpu on : cpu      KS206                          / KS202 KS202 KS206
vllm   TEXT    gpu    off: cpu      -                              / KS202 KS202
vllm   TEXT    gpu    on : cpu      KS206                          / KS202 KS202 KS206
vllm   UNKNOWN no-gpu off: cpu      KS201                          / KS201 KS202 KS202
vllm   UNKNOWN no-gpu on : cpu      KS201                          / KS201 KS202 KS202
vllm   UNKNOWN gpu    off: unknown  KS201                          / KS201 KS202 KS202
vllm   UNKNOWN gpu    on : unknown  KS201                          / KS201 KS202 KS202
"""
ARCHITECTURES = {"K25": K25, "K3": K3, "QWEN": QWEN, "TEXT": TEXT_ONLY, "UNKNOWN": UNKNOWN}


def rule_names(text: str) -> list[str]:
    return [name for name in text.split() if name != "-"]


def product_rows() -> list[tuple[str, str, str, str, int, str, list[str]]]:
    rows: list[tuple[str, str, str, str, int, str, list[str]]] = []
    for line in PRODUCT.strip().splitlines():
        case, _, outcome = line.partition(":")
        engine, name, gpu, flag = case.split()
        device, _, found = outcome.strip().partition(" ")
        for workers, names in zip((1, 16), found.split("/"), strict=True):
            rows.append((engine, name, gpu, flag, workers, device, rule_names(names)))
    return rows


def test_the_product_is_complete() -> None:
    rows = product_rows()
    assert len({row[:5] for row in rows}) == len(rows) == 3 * 5 * 2 * 2 * 2


@pytest.mark.parametrize(
    ("engine", "name", "gpu", "flag", "workers", "device", "expected"), product_rows()
)
def test_product(
    engine: str, name: str, gpu: str, flag: str, workers: int, device: str, expected: list[str]
) -> None:
    given: dict[str, Any] = {"engine.kind": engine, "tokenizer.worker_num": workers}
    if flag == "on":
        given[FLAG] = True
    checkpoint = make_checkpoint(ARCHITECTURES[name])
    hardware = ONE_GPU if gpu == "gpu" else NO_GPU
    if device == "refused":
        with pytest.raises(PlanError, match=ARCHITECTURES[name]):
            make_plan(given, checkpoint=checkpoint, hardware=hardware)
        return
    plan = make_plan(given, checkpoint=checkpoint, hardware=hardware)
    assert plan.decode_device.value == plan.preprocess_device.value == device
    assert rules(plan) == expected
    assert len(plan.worker_specs()) == (workers if engine == "none" else 0)
    assert all(
        resolved.source and resolved.reason
        for resolved in (plan.decode_device, plan.preprocess_device, plan.engine, plan.model)
    )


# Devices: who decided, and why


def test_the_flag_decides_and_is_named() -> None:
    plan = make_plan({FLAG: True}, origins={FLAG: Origin("env", "KIMI_SERVE_X")}, hardware=ONE_GPU)
    assert plan.decode_device.source == "env KIMI_SERVE_X"
    assert "CUDA_VISIBLE_DEVICES empty" in plan.decode_device.reason


def test_no_cuda_is_a_reason() -> None:
    plan = make_plan()
    assert plan.preprocess_device.source == "hardware"
    assert plan.preprocess_device.reason == f"no CUDA device visible: {NO_GPU.gpu_source}"


def test_without_the_gpu_extra_the_built_in_workers_stay_on_the_cpu_and_say_so() -> None:
    plan = make_plan(hardware=ONE_GPU)
    assert plan.decode_device.value == plan.preprocess_device.value == "cpu"
    assert plan.decode_device.source == "hardware"
    assert "gpu extra (torch, torchvision) is not installed" in plan.decode_device.reason
    assert dict(plan.worker_specs()[0].env)["CUDA_VISIBLE_DEVICES"] == ""
    assert only(plan, "KS210").severity == "info"
    assert FLAG in (only(plan, "KS210").help or "")


def test_with_the_gpu_extra_the_built_in_workers_use_the_gpu() -> None:
    hardware = dataclasses.replace(ONE_GPU, has_gpu_extra=True)
    plan = make_plan({"gpu.worker_budget_mib": 512}, hardware=hardware)
    assert plan.decode_device.value == plan.preprocess_device.value == "cuda"
    assert plan.decode_device.source == "support table"
    assert "KS210" not in rules(plan)
    spec = plan.worker_specs()[0]
    assert (spec.decode_device, spec.preprocess_device) == ("cuda", "cuda")
    assert spec.gpu_budget_bytes == 512 * 2**20
    assert "CUDA_VISIBLE_DEVICES" not in dict(spec.env)
    forced = make_plan({FLAG: True}, hardware=hardware).worker_specs()[0]
    assert (forced.decode_device, dict(forced.env)["CUDA_VISIBLE_DEVICES"]) == ("cpu", "")


@pytest.mark.parametrize(
    ("given", "env", "visible"),
    [
        ({}, {"CUDA_VISIBLE_DEVICES": "2,3"}, "2,3"),
        ({"gpu.ids": ("5", "6")}, {"CUDA_VISIBLE_DEVICES": "2,3"}, "5"),
        ({"gpu.ids": ("GPU-8f1c",)}, {}, "GPU-8f1c"),
        ({}, {}, None),
    ],
)
def test_a_cuda_worker_sees_the_devices_that_the_plan_counts_with(
    given: dict[str, Any], env: dict[str, str], visible: str | None
) -> None:
    plan = make_plan(given, hardware=dataclasses.replace(ONE_GPU, has_gpu_extra=True), env=env)
    found = dict(plan.worker_specs()[0].env)
    assert found.get("CUDA_VISIBLE_DEVICES") == visible
    assert found["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


@pytest.mark.parametrize(
    ("given", "source", "device"),
    [
        ({"gpu.total_mib": 81920}, "prod.yaml:4:3", "cuda"),
        ({"gpu.ids": ("0",)}, "prod.yaml:4:3", "cuda"),
        ({"gpu.ids": ()}, "prod.yaml:4:3", "cpu"),
        ({"gpu.ids": (), "gpu.total_mib": 81920}, "prod.yaml:4:3", "cpu"),
    ],
)
def test_a_profile_declares_gpus(given: dict[str, Any], source: str, device: str) -> None:
    base = {"model.path": "m", "engine.kind": "sglang", "engine.version": "0.5.23"}
    for hardware in (NO_GPU, ONE_GPU):
        plan = make_plan(base | given, hardware=hardware)
        assert plan.preprocess_device.value == device
        if device == "cpu":
            assert plan.preprocess_device.source == source


def test_a_row_may_split_the_devices() -> None:
    internvl = make_checkpoint("InternVLChatModel")
    given = {"engine.kind": "sglang", FLAG: True}
    plan = make_plan(given, checkpoint=internvl, hardware=ONE_GPU)
    assert (plan.decode_device.value, plan.preprocess_device.value) == ("cpu", "cuda")
    message = only(plan, "KS201").message
    assert "preprocesses images on the GPU" in message
    assert "decodes" not in message


def test_an_engine_goes_by_the_architecture_even_if_no_vision_part_was_read() -> None:
    phi = make_checkpoint("Phi4MMForCausalLM", has_vision=False)
    plan = make_plan({"engine.kind": "sglang", FLAG: True}, checkpoint=phi, hardware=ONE_GPU)
    assert rules(plan) == ["KS201"]
    assert plan.decode_device.value == "cuda"


# KS201


def test_an_ignored_flag_names_model_engine_outcome_and_remedy() -> None:
    origin = Origin("profile", "prod.yaml", 3, 34, 38)
    plan = make_plan(
        {"engine.kind": "sglang", "engine.version": "0.5.23", FLAG: True},
        origins={FLAG: origin},
        checkpoint=make_checkpoint(K3),
        hardware=ONE_GPU,
    )
    finding = only(plan, "KS201")
    assert (finding.severity, finding.origin, finding.path) == ("warning", origin, FLAG)
    assert f"no effect for {K3} on sglang 0.5.23" in finding.message
    assert "on the GPU whenever a CUDA device is visible" in finding.message
    assert f"honours it for {K25} only" in finding.message
    assert finding.help is not None
    assert "nvimgcodec" in finding.help
    assert "SGLANG_EXTERNAL_MM_PROCESSOR_PACKAGE" in finding.help
    assert "whatever image.force_cpu_preprocessing says" in plan.decode_device.reason


def test_needless_is_only_information() -> None:
    plan = make_plan({"engine.kind": "vllm", FLAG: True}, hardware=ONE_GPU)
    assert only(plan, "KS201").severity == "info"
    assert "on the CPU already" in only(plan, "KS201").message


def test_nothing_helps_is_said() -> None:
    step = make_checkpoint("Step3VLForConditionalGeneration")
    given = {"engine.kind": "sglang", FLAG: True}
    plan = make_plan(given, checkpoint=step, hardware=ONE_GPU)
    assert "nothing helps in this version" in (only(plan, "KS201").help or "")


# KS207


def test_the_newest_checked_version_is_assumed() -> None:
    plan = make_plan({"engine.kind": "sglang"})
    assert plan.engine_version == "0.5.23"
    assert "newest that was checked" in plan.engine.reason


def test_an_older_version_is_not_claimed() -> None:
    given = {"engine.kind": "sglang", "engine.version": "0.5.22", FLAG: True}
    plan = make_plan(given, hardware=ONE_GPU)
    assert plan.decode_device.value == "unknown"
    assert rules(plan) == ["KS205", "KS207"]
    assert "0.5.22 was not checked" in only(plan, "KS207").message


def test_a_newer_version_is_noted() -> None:
    plan = make_plan({"engine.kind": "sglang", "engine.version": "0.6.0"}, hardware=ONE_GPU)
    assert plan.decode_device.value == "cuda"
    assert only(plan, "KS207").severity == "info"


# KS206, KS105, KS208, KS202


def test_image_options_of_a_text_only_model() -> None:
    plan = make_plan(
        {"engine.kind": "sglang", FLAG: True, "image.dtype": "bfloat16"},
        checkpoint=make_checkpoint(TEXT_ONLY),
    )
    assert [(found.rule, found.path) for found in plan.findings] == [
        ("KS206", FLAG),
        ("KS206", "image.dtype"),
    ]
    assert TEXT_ONLY in plan.findings[0].message


def test_the_flag_set_to_false_is_no_option_in_vain() -> None:
    checkpoint = make_checkpoint(TEXT_ONLY)
    assert rules(make_plan({"engine.kind": "sglang", FLAG: False}, checkpoint=checkpoint)) == []


def test_the_demo_is_announced() -> None:
    checkpoint = make_checkpoint(origin="bundled", name="kimi-demo")
    plan = make_plan({"model.path": None}, checkpoint=checkpoint, origins={"model.path": DEFAULT})
    finding = only(plan, "KS105")
    assert finding.severity == "warning"
    assert finding.message == (
        "no model is configured: the bundled demo checkpoint is served (real image parameters "
        "and special ids, toy vocabulary)"
    )
    assert (plan.model.value, plan.model.source) == ("kimi-demo", "default")


def test_disagreements_are_passed_on() -> None:
    plan = make_plan(checkpoint=make_checkpoint(disagreements=("a says 1, b says 2", "c")))
    assert [found.message for found in plan.findings] == ["a says 1, b says 2", "c"]
    assert rules(plan) == ["KS208", "KS208"]


def test_settings_that_the_built_in_workers_do_not_use() -> None:
    given = {
        "model.trust_remote_code": True,
        "media.allowed_domains": ("example.org",),
        "media.allowed_local_dirs": ("/pictures",),
    }
    plan = make_plan(given)
    assert [(found.rule, found.severity, found.path) for found in plan.findings] == [
        ("KS202", "info", "model.trust_remote_code"),
    ]
    assert rules(make_plan(given | {"engine.kind": "vllm"})) == []


def test_findings_of_the_load_are_kept_and_ordered_by_severity() -> None:
    info = Finding("KS108", "info", "shadowed", DEFAULT)
    error = Finding("KS104", "error", "bad", DEFAULT)
    plan = make_plan({"engine.args": ("--a",)}, findings=(info, error))
    assert [found.rule for found in plan.findings] == ["KS104", "KS202", "KS108"]


# Refusals


@pytest.mark.parametrize(
    ("architecture", "message", "hint"),
    [
        (K3, f"do not support {K3}; they support {K25}", "sglang or vllm"),
        ("Glm4vForConditionalGeneration", "do not support Glm4v", "engine.kind to sglang for"),
        (UNKNOWN, f"do not support {UNKNOWN}; they support {K25}", "model.path"),
        (TEXT_ONLY, f"text-only checkpoint ({TEXT_ONLY}", "model.path"),
    ],
)
def test_architectures_that_the_built_in_workers_refuse(
    architecture: str, message: str, hint: str
) -> None:
    with pytest.raises(PlanError) as caught:
        make_plan(checkpoint=make_checkpoint(architecture))
    assert message in caught.value.message
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"has_vision": False, "architectures": (TEXT_ONLY,)}, "text-only"),
        ({"has_vision": False, "resize": None}, "has no image processor parameters"),
        ({"resize": None}, "has no image processor parameters"),
        ({"architectures": ()}, "a checkpoint that names no architecture"),
        ({"tokenizer_kind": None}, "holds no tokenizer"),
    ],
)
def test_checkpoints_that_lack_something(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        make_plan(checkpoint=make_checkpoint(**changes))


def test_a_missing_tokenizer_has_a_remedy_that_works() -> None:
    checkpoint = make_checkpoint(tokenizer_kind=None)
    with pytest.raises(PlanError) as caught:
        make_plan(checkpoint=checkpoint)
    assert "tokenizer.skip_init: true" in (caught.value.hint or "")
    plan = make_plan({"tokenizer.skip_init": True}, checkpoint=checkpoint)
    assert plan.worker_specs()[0].tokenizer is None


# Worker specs


def test_a_checkpoint_that_transformers_saved_again_is_served() -> None:
    checkpoint = make_checkpoint(architectures=("Kimi_K25ForConditionalGeneration",))
    plan = make_plan({FLAG: True, "tokenizer.worker_num": 2}, checkpoint=checkpoint)
    assert [spec.resize for spec in plan.worker_specs()] == [RESIZE, RESIZE]
    assert rules(plan) == ["KS202"]


def test_worker_specs() -> None:
    plan = make_plan(
        {"tokenizer.worker_num": 2, "image.background": "#102030", "media.max_bytes": 99}
    )
    first, second = plan.worker_specs()
    assert (first.index, second.index) == (0, 1)
    assert dataclasses.replace(second, index=0) == first
    assert (first.decode_device, first.preprocess_device) == ("cpu", "cpu")
    assert first.resize == RESIZE
    assert (first.rules.background, first.rules.max_bytes) == ((16, 32, 48), 99)
    assert first.tokenizer == TokenizerSpec("/models/m", "tokenizer.json", 163605, "/models/m")
    assert pickle.loads(pickle.dumps(first)) == first


def test_worker_environment() -> None:
    env = dict(make_plan().worker_specs()[0].env)
    assert env["CUDA_VISIBLE_DEVICES"] == ""
    for name in ("OMP", "OPENBLAS", "MKL", "RAYON"):
        assert env[f"{name}_NUM_THREADS"] == "1"
    assert env["TOKENIZERS_PARALLELISM"] == "false"
    assert env["MALLOC_MMAP_THRESHOLD_"] == env["MALLOC_TRIM_THRESHOLD_"] == "1073741824"
    assert env["MALLOC_ARENA_MAX"] == "1"


def test_what_pillow_decodes_lies_in_one_piece_in_a_worker() -> None:
    env = dict(make_plan().worker_specs()[0].env)
    code = "from PIL import Image; Image.new('RGB', (8000, 6000)).__arrow_c_array__()"
    for variables, is_whole in ((env, True), ({}, False)):
        done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True)
        assert (done.returncode == 0) is is_whole, done.stderr


@pytest.mark.parametrize(("dtype", "size"), [("float32", 4), ("bfloat16", 2), ("uint8", 1)])
def test_a_slot_holds_the_largest_image(dtype: str, size: int) -> None:
    spec = make_plan({"image.dtype": dtype}).worker_specs()[0]
    assert spec.slots == 3
    # 17856 patches is the largest image known for these parameters; as base64 it is a third more.
    largest = len(b64encode(bytes(17856 * 588 * size)))
    assert largest <= spec.slot_bytes <= 1.02 * largest
    assert spec.slot_bytes % 4 == 0


def test_the_inputs_decide_alone() -> None:
    given = {"tokenizer.worker_num": 4, FLAG: True}
    assert make_plan(given) == make_plan(given)
    plan = make_plan(given)
    assert plan.values == make_loaded(given).values
    assert plan.worker_num.value == 4


def test_a_gpu_without_known_memory_is_not_asked_for_it() -> None:
    hardware = Hardware(8.0, 1024, (Gpu(0, total_mib=81920),), "NVML lists 1 GPU")
    given = {"engine.kind": "sglang", "model.trust_remote_code": True}
    assert make_plan(given, hardware=hardware).findings == ()


@pytest.mark.parametrize("module", ["resolver.resolve", "report.render", "machine.hardware"])
def test_planning_stays_light(module: str) -> None:
    code = (
        f"import sys, kimi_serve.launcher.{module}; "
        "print(*({'numpy', 'torch', 'fastapi', 'PIL', 'pynvml'} & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == ""


def test_a_chat_template_is_needed_to_serve_texts() -> None:
    bare = make_checkpoint(has_chat_template=False)
    with pytest.raises(PlanError, match="no chat template") as caught:
        make_plan(checkpoint=bare)
    assert "tokenizer.skip_init" in str(caught.value.hint)
    assert make_plan({"tokenizer.skip_init": True}, checkpoint=bare).worker_specs()


@pytest.mark.parametrize(
    ("wanted", "is_there", "path", "words"),
    [
        ("auto", True, "native", "once it equals the installed Pillow"),
        ("native", True, "native", "once it equals the installed Pillow"),
        ("auto", False, "pure", "is not installed (no C compiler when kimi-serve was?): Pillow"),
        ("pure", True, "pure", "image.kernel is pure"),
        ("pure", False, "pure", "image.kernel is pure"),
    ],
)
def test_the_plan_says_what_makes_the_pixels(
    wanted: str, is_there: bool, path: str, words: str
) -> None:
    hardware = dataclasses.replace(NO_GPU, has_image_kernel=is_there)
    decided = make_plan({"image.kernel": wanted}, hardware=hardware).image_kernel
    assert decided is not None
    assert decided.value == path
    assert words in decided.reason


def test_a_kernel_that_is_not_there_is_refused_before_the_start() -> None:
    hardware = dataclasses.replace(NO_GPU, has_image_kernel=False)
    with pytest.raises(PlanError, match=r"image\.kernel is native .*is not installed") as caught:
        make_plan({"image.kernel": "native"}, hardware=hardware)
    assert caught.value.exit_code == 3
    assert "image.kernel: auto" in str(caught.value.hint)


def test_an_engine_makes_its_own_pixels() -> None:
    hardware = dataclasses.replace(NO_GPU, has_image_kernel=False)
    given = {"engine.kind": "sglang", "image.kernel": "native"}
    assert make_plan(given, hardware=hardware).image_kernel is None
