"""The rule list itself, and what the case files cannot say: related places, fixes, machines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plan_factories import (
    K3,
    K25,
    NO_GPU,
    ONE_GPU,
    QWEN,
    TEXT_ONLY,
    make_checkpoint,
    make_loaded,
)

from kimi_serve.launcher.resolver.situation import Situation, look_up
from kimi_serve.launcher.rules import ALL_RULES, run_rules
from kimi_serve.launcher.sources.load import Layers, merge
from kimi_serve.launcher.sources.profile import read_profile_text
from kimi_serve.schemas.engine_facts import engine_table
from kimi_serve.schemas.findings import Finding
from kimi_serve.schemas.hardware import Gpu, Hardware
from kimi_serve.schemas.limits import load_limits
from kimi_serve.schemas.rules import RULES
from kimi_serve.schemas.support import load_support

ENGINES = ("sglang", "vllm")


def situation(
    text: str, architecture: str = K25, hardware: Hardware | None = None, **env: str
) -> Situation:
    layers = read_profile_text(text, "p.yaml", "/deploy", None)
    checkpoint = make_checkpoint(architecture)
    return look_up(merge(Layers(layers)), checkpoint, hardware, load_support(), env or None)


def found(rule: str, *about: Any, **named: Any) -> list[Finding]:
    return [one for one in run_rules(situation(*about, **named)) if one.rule == rule]


L14 = """\
model: {path: ./k25, trust_remote_code: true}
engine: {kind: sglang, version: 0.5.23}
tokenizer: {worker_num: 16}
server: {api_key: {env: KIMI_KEY}}
image: {force_cpu_preprocessing: true}
"""


def test_the_workers_are_related_to_the_key_that_they_die_of() -> None:
    (finding,) = found("KS203", L14)
    assert str(finding.origin) == "p.yaml:4:10"
    assert [str(each) for each in finding.related] == ["p.yaml:3:25"]
    assert "***" not in finding.message


def test_a_rule_without_facts_is_silent() -> None:
    layers = read_profile_text(L14, "p.yaml", "/deploy", None)
    bare = look_up(merge(Layers(layers)), None, None, load_support())
    assert {one.rule for one in run_rules(bare) if one.severity != "info"} == {"KS203"}


def test_errors_come_first_then_places() -> None:
    text = "model: {path: ./m}\nengine: {kind: sglang, args: [--nope, --disable-cuda-graph, --zap]}"
    told = run_rules(situation(text, QWEN))
    assert [one.rule for one in told] == ["KS103", "KS103", "KS109"]
    columns = [one.origin.column or 0 for one in told]
    assert columns[0] < columns[1]


@pytest.mark.parametrize(
    ("new", "old", "is_forced"), [("0", "1", True), ("1", "0", False), ("1", None, True)]
)
def test_the_old_name_of_the_switch_wins(new: str, old: str | None, is_forced: bool) -> None:
    twin = f", SGL_FORCE_CPU_IMAGE_PREPROCESSING: '{old}'" if old else ""
    env = f"{{SGLANG_FORCE_CPU_IMAGE_PREPROCESSING: '{new}'{twin}}}"
    text = f"model: {{path: ./m}}\nengine: {{kind: sglang, env: {env}}}"
    assert situation(text).is_forced is is_forced
    assert bool(found("KS110", text)) is bool(old)


SPELLINGS = {
    kind: sorted(table.by_spelling) for kind in ENGINES if (table := engine_table(kind)) is not None
}
NAMES = {
    kind: sorted(table.environment) for kind in ENGINES if (table := engine_table(kind)) is not None
}
TEXTS = st.one_of(
    st.sampled_from(("", "0", "1", "-1", "2", "1e400", "nan", "true", "off", "{}", "[]", "${X}")),
    st.sampled_from(('{"image": null}', '{"image": {"a": 1}}', "cuda_ipc", "cuda_vmm", "9" * 5000)),
    st.text(st.characters(blacklist_categories=("Cs",)), max_size=8),
)


@st.composite
def engine_settings(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(ENGINES))
    words = st.one_of(st.sampled_from(SPELLINGS[kind]), TEXTS)
    return {
        "engine.kind": kind,
        "engine.args": tuple(draw(st.lists(words, max_size=12))),
        "engine.env": draw(st.dictionaries(st.sampled_from(NAMES[kind]), TEXTS, max_size=4)),
        "tokenizer.worker_num": draw(st.sampled_from((1, 2, 1024))),
        "image.force_cpu_preprocessing": draw(st.booleans()),
    }


@given(engine_settings(), st.sampled_from((K25, K3, QWEN, TEXT_ONLY)))
def test_no_arguments_make_a_rule_fail(settings: dict[str, Any], architecture: str) -> None:
    loaded, checkpoint = make_loaded(settings), make_checkpoint(architecture)
    for hardware in (None, NO_GPU, ONE_GPU):
        told = run_rules(look_up(loaded, checkpoint, hardware, load_support(), {"SGL_X": "1"}))
        assert all(one.rule in RULES and one.message for one in told)


def test_each_rule_is_listed_once() -> None:
    assert len(set(ALL_RULES)) == len(ALL_RULES)


FIXES = [
    ("--reasoning_parser", "--reasoning-parser", "unsafe"),
    ("--max-model-len", "--context-length", "unsafe"),
    ("--grpc-mode", "--smg-grpc-mode", "safe"),
    ('"--disable-fast-image-processor"', "--image-processor-backend=pil", "safe"),
]


@pytest.mark.parametrize(("written", "mended", "applicability"), FIXES)
def test_a_flag_is_mended_in_place(written: str, mended: str, applicability: str) -> None:
    line = f"  args: [{written}, '1']"
    text = f"model: {{path: ./m}}\nengine:\n  kind: sglang\n{line}\n"
    (fix,) = [one.fix for one in run_rules(situation(text, K3)) if one.fix is not None]
    (edit,) = fix.edits
    assert fix.applicability == applicability
    assert line[edit.column - 1 : edit.end_column - 1] == written.strip('"')
    assert edit.text == mended


def test_a_boolean_is_mended_with_its_quotes() -> None:
    line = "  env: {SGLANG_VIT_ENABLE_CUDA_GRAPH: 'On'}"
    text = f"model: {{path: ./m}}\nengine:\n  kind: sglang\n{line}\n"
    (finding,) = found("KS107", text, K3)
    assert finding.fix is not None
    (edit,) = finding.fix.edits
    assert line[edit.column - 1 : edit.end_column - 1] == "'On'"
    assert (finding.fix.applicability, edit.text) == ("safe", '"1"')


def test_a_word_that_may_be_a_secret_is_not_repeated() -> None:
    text = "model: {path: ./m}\nengine: {kind: sglang, args: [sk-EXAMPLE, -sk-EXAMPLE]}"
    told = run_rules(situation(text, K3))
    assert [one.rule for one in told if one.rule == "KS103"] == ["KS103"] * 2
    assert "EXAMPLE" not in repr([(one.message, one.help, one.fix) for one in told])


def test_what_a_reference_will_be_is_not_guessed() -> None:
    args = """["${MORE}", "--${FLAG}", --port, "${PORT}", --base-gpu-id, "${GPU}", --ep, "8"]"""
    env = """{CUDA_VISIBLE_DEVICES: "${GPUS}", SGLANG_USE_AITER: "${ON}"}"""
    engine = f"engine: {{kind: sglang, args: {args}, env: {env}}}"
    text = f"model: {{path: ./m}}\nserver: {{port: 8000}}\n{engine}\n"
    assert not [one for one in run_rules(situation(text, K3)) if one.rule.startswith(OURS)]
    text = 'model: {path: ./m}\nengine: {kind: vllm, args: [--mm-processor-device, "${WHERE}"]}'
    assert not [one for one in run_rules(situation(text)) if one.rule.startswith(OURS)]


OURS = ("KS1", "KS2", "KS3")


def test_vision_attention_on_a_new_gpu() -> None:
    text = "model: {path: ./m}\nengine: {kind: sglang, args: [--mm-attention-backend, fa3]}"
    new = Hardware(8.0, 1024, (Gpu(0, name="NVIDIA B200"),), "NVML lists 1 GPU")
    old = Hardware(8.0, 1024, (Gpu(0, name="NVIDIA H200"),), "NVML lists 1 GPU")
    assert [one.severity for one in found("KS204", text, K3, new)] == ["error"]
    assert not found("KS204", text, K3, old)
    assert not found("KS204", text, K3, NO_GPU)


def test_a_plan_elsewhere_is_warned_of_a_missing_gpu() -> None:
    text = "model: {path: ./m}\nengine: {kind: sglang, args: [--mm-feature-transport, cuda_ipc]}"
    assert [one.severity for one in found("KS204", text, K3, NO_GPU)] == ["warning"]
    assert not found("KS204", text, K3)


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ('["--port", "99999"]', ["--port 99999"]),
        ('["--mem-fraction-static", "1.5"]', ["no share"]),
        ('["--node-rank", "5", "--nnodes", "2", "--dist-init-addr", "a:1"]', ["does not exist"]),
        ("['--mm-process-config', '{\"imagee\": {}}']", ["imagee"]),
        ('["--tp", "eight"]', ["whole number"]),
        ('["--mm-feature-transport", "gpu"]', ["cpu, cuda_ipc, cuda_vmm"]),
        ('["--port", "8000", "--tp", "8"]', []),
    ],
)
def test_values_that_the_engine_should_refuse(args: str, expected: list[str]) -> None:
    text = f"model: {{path: ./m}}\nengine: {{kind: sglang, args: {args}}}"
    told = [one for one in found("KS104", text, K3) if one.severity != "info"]
    assert len(told) == len(expected)
    assert all(words in one.message for words, one in zip(expected, told, strict=True))


def test_every_row_of_the_limits_is_of_a_release_and_a_variable_that_exist() -> None:
    limits, table = load_limits(), engine_table("sglang")
    assert table is not None
    assert all(table.env(row.name) for row in limits.reads)
    assert all(row.source and row.versions.since for row in (*limits.reads, *limits.fractions))
    known = {name for row in load_support().rows for name in row.architectures}
    assert all(set(row.architectures) <= known for row in (*limits.reads, *limits.fractions))
    assert limits.readers("sglang", "0.5.10", "SGLANG_IMAGE_MAX_PIXELS") is None


def test_settings_without_inner_places_point_at_the_whole() -> None:
    loaded = make_loaded({"engine.kind": "sglang", "engine.args": ("--nope",)})
    told = run_rules(look_up(loaded, make_checkpoint(QWEN), None, load_support()))
    assert [(one.rule, str(one.origin), one.fix) for one in told] == [
        ("KS103", "prod.yaml:3:3", None)
    ]


def test_this_folder_has_no_module_without_rules() -> None:
    folder = Path(__file__).parents[2] / "launcher" / "rules"
    helpers = {"__init__", "wording", "transport", "given", "ports", "image_work"}
    helpers |= {"processor_device", "memory", "engine_memory"}
    modules = {path.stem for path in folder.glob("*.py")} - helpers
    for module in modules:
        assert "\nRULES" in (folder / f"{module}.py").read_text(encoding="utf-8"), module
