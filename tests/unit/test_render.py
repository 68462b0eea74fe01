"""A plan as text, JSON and log lines; one setting explained; no secret in any of them."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from plan_factories import K3, K25, ONE_GPU, make_checkpoint, make_loaded, make_plan

from kimi_serve.launcher.report.explain import explain_text
from kimi_serve.launcher.report.render import log_lines, plan_json, plan_text
from kimi_serve.launcher.report.words import columns, show
from kimi_serve.schemas.errors import ConfigError
from kimi_serve.schemas.fields import setting_fields
from kimi_serve.schemas.plan import LaunchPlan, LoadedSettings
from kimi_serve.schemas.provenance import DEFAULT, Origin

FLAG = Origin("flag", "--tokenizer-worker-num")
FILE = Origin("profile", "prod.yaml", 4, 15, 16)
SECRET = "hunter2-hunter2"


SAMPLE: dict[str, Any] = {
    "tokenizer.worker_num": 16,
    "server.api_key": SECRET,
    "engine.env": {"HF_TOKEN": SECRET, "TOKENIZERS_PARALLELISM": "false"},
    "engine.args": ("--admin-api-key", SECRET, f"--hf-token={SECRET}", "--tp", "8"),
}
PLACES: dict[str, Any] = {
    "origins": {"tokenizer.worker_num": FLAG},
    "overrode": {"tokenizer.worker_num": ((FILE, 8), (DEFAULT, 1))},
}


def sample() -> LaunchPlan:
    return make_plan(SAMPLE, **PLACES, hardware=ONE_GPU)


def sample_settings() -> LoadedSettings:
    return make_loaded(SAMPLE, **PLACES)


def lines_of(text: str, title: str) -> list[str]:
    """The lines of one block."""
    blocks = [block.splitlines() for block in text.split("\n\n")]
    return next(block[1:] for block in blocks if block[0] == title)


def test_settings_stand_with_origin_and_what_they_overrode() -> None:
    lines = lines_of(plan_text(sample(), changed_only=False), "settings")
    assert len(lines) == len(setting_fields())
    line = next(line for line in lines if "tokenizer.worker_num" in line)
    assert line.split() == [
        *("tokenizer.worker_num", "16", "--tokenizer-worker-num,"),
        *("over", "8", "(prod.yaml:4:15)"),
    ]
    assert next(line for line in lines if "server.port" in line).split()[1:] == ["30000", "default"]


def test_only_what_was_set() -> None:
    lines = lines_of(plan_text(sample(), changed_only=True), "settings")
    assert [line.split()[0] for line in lines] == [
        "model.path",
        "tokenizer.worker_num",
        "server.api_key",
        "engine.args",
        "engine.env",
    ]
    plain = make_plan(origins={"model.path": DEFAULT})
    assert "every setting has its default" in plan_text(plain, changed_only=True)


def test_columns_are_aligned() -> None:
    lines = lines_of(plan_text(sample(), changed_only=False), "settings")
    short = [line for line in lines if len(line) < 100]
    assert len({line.index(line.split()[1]) for line in short if "engine." not in line}) == 1


def test_devices_stand_with_their_reasons() -> None:
    text = plan_text(make_plan({"image.force_cpu_preprocessing": True}), changed_only=True)
    decode, preprocess, kernel = lines_of(text, "devices")
    assert kernel.split()[:3] == ["image_kernel", "native", "default:"]
    assert decode.split()[:2] == ["decode_device", "cpu"]
    assert "prod.yaml:2:3: image.force_cpu_preprocessing is on" in preprocess


def test_workers_are_summed_up() -> None:
    lines = lines_of(plan_text(sample(), changed_only=True), "workers")
    text = "\n".join(lines)
    assert "count" in text
    assert "16" in text
    assert "CUDA_VISIBLE_DEVICES=''" in text
    assert "OMP_NUM_THREADS=1" in text
    assert f"3 slots x {18025 * 2352 * 4 // 3} bytes = {18025 * 2352 * 4} bytes" in text


def test_an_engine_has_no_block_of_workers() -> None:
    assert "\nworkers\n" not in plan_text(make_plan({"engine.kind": "sglang"}), changed_only=True)


def test_findings_stand_with_their_position() -> None:
    checkpoint = make_checkpoint(disagreements=("two blocks differ",))
    text = plan_text(make_plan(checkpoint=checkpoint), changed_only=True)
    assert lines_of(text, "findings") == ["  prod.yaml:1:3: warning KS208 two blocks differ"]


def test_json() -> None:
    plan = sample()
    document = plan_json(plan, changed_only=False)
    assert json.loads(json.dumps(document)) == document
    assert document["format_version"] == 1
    assert [entry["path"] for entry in document["settings"]] == list(setting_fields())
    workers = next(
        entry for entry in document["settings"] if entry["path"] == "tokenizer.worker_num"
    )
    assert workers["value"] == 16
    assert workers["origin"]["text"] == "--tokenizer-worker-num"
    assert workers["overrode"][0]["value"] == 8
    assert workers["overrode"][0]["origin"]["line"] == 4
    assert set(document["decisions"]) == {
        *("model", "engine", "worker_num", "decode_device", "preprocess_device"),
        *("image_kernel", "worker_memory_mib"),
    }
    assert set(document["decisions"]["decode_device"]) == {"value", "source", "reason"}
    assert document["checkpoint"]["architectures"] == [K25]
    assert document["hardware"]["gpus"][0]["index"] == 0
    assert [spec["index"] for spec in document["workers"]] == list(range(16))
    assert document["workers"][0]["env"]["OMP_NUM_THREADS"] == "1"
    assert "KS210" in [finding["rule"] for finding in document["findings"]]


def test_json_of_what_was_set() -> None:
    document = plan_json(sample(), changed_only=True)
    assert "server.port" not in [entry["path"] for entry in document["settings"]]


def test_no_secret_is_shown() -> None:
    plan = sample()
    shown = [
        plan_text(plan, changed_only=False),
        json.dumps(plan_json(plan)),
        *(line for _, line in log_lines(plan)),
        *(explain_text(sample_settings(), path) for path in setting_fields()),
    ]
    assert not [text for text in shown if SECRET in text]
    args = next(entry for entry in plan_json(plan)["settings"] if entry["path"] == "engine.args")
    assert args["value"] == ["--admin-api-key", "***", "--hf-token=***", "--tp", "8"]
    env = next(entry for entry in plan_json(plan)["settings"] if entry["path"] == "engine.env")
    assert env["value"] == {"HF_TOKEN": "***", "TOKENIZERS_PARALLELISM": "false"}


@pytest.mark.parametrize(
    ("name", "text", "is_hidden"),
    [
        ("AWS_SECRET_ACCESS_KEY", "x", True),
        ("OPENAI_APIKEY", "x", True),
        ("DB_PASSWORD", "x", True),
        ("HTTPS_PROXY", "http://user:pw@proxy:3128", True),
        ("HTTPS_PROXY", "http://proxy:3128", False),
        ("SGLANG_FORCE_CPU_IMAGE_PREPROCESSING", "1", False),
        ("KEYBOARD", "us", False),
    ],
)
def test_what_looks_like_a_secret(name: str, text: str, is_hidden: bool) -> None:
    (entry,) = (
        entry
        for entry in plan_json(make_plan({"engine.env": {name: text}}))["settings"]
        if entry["path"] == "engine.env"
    )
    assert entry["value"] == {name: "***" if is_hidden else text}


def test_the_log_has_every_decision_and_finding() -> None:
    levels = {line: level for level, line in log_lines(sample())}
    lines = list(levels)
    starts = ("model: ", "engine: none", "worker num: 16", "decode device: cpu", "preprocess dev")
    for line, start in zip(lines, starts, strict=False):
        assert line.startswith(start)
    assert "tokenizer.worker_num = 16 (--tokenizer-worker-num)" in lines
    assert all(levels[line] == logging.INFO for line in lines if "info KS210" in line)


def test_a_warning_is_logged_as_one() -> None:
    settings = {"image.force_cpu_preprocessing": True, "engine.kind": "sglang"}
    plan = make_plan(settings, checkpoint=make_checkpoint(K3))
    (level,) = (level for level, line in log_lines(plan) if "KS201" in line)
    assert level == logging.WARNING


def test_explain() -> None:
    text = explain_text(sample_settings(), "tokenizer.worker_num")
    assert text.splitlines()[:2] == [
        "tokenizer.worker_num",
        "  Worker processes, each with its own tokenizer and image processor.",
    ]
    for row in (
        "value    16",
        "set by   --tokenizer-worker-num",
        "type     int, >= 1, <= 1024",
        "default  1",
        "flag     --tokenizer-worker-num",
        "env      KIMI_SERVE_TOKENIZER__WORKER_NUM",
        "yaml     tokenizer: {worker_num: ...}",
    ):
        assert f"  {row}\n" in text
    assert text.splitlines()[-3:] == [
        "  16  --tokenizer-worker-num",
        "  8   prod.yaml:4:15",
        "  1   default",
    ]


@pytest.mark.parametrize(
    ("path", "row"),
    [
        ("image.policy", "type     display | checkpoint"),
        (
            "image.formats",
            "type     list of jpeg | png | webp | gif | bmp | tiff | avif, length >= 1",
        ),
        ("engine.env", "type     mapping of str to str"),
        ("gpu.total_mib", "type     int or null, >= 1, <= 16777216"),
        ("gpu.mem_fraction_static", "type     float or null, > 0, < 1"),
        ("server.api_key", "value    null"),
        (
            "image.force_cpu_preprocessing",
            "flag     --force-cpu-image-preprocessing / --no-force-cpu-image-preprocessing",
        ),
    ],
)
def test_explain_names_what_is_allowed(path: str, row: str) -> None:
    assert f"  {row}\n" in explain_text(make_loaded(), path)


def test_every_setting_can_be_explained() -> None:
    loaded = make_loaded()
    for path, field in setting_fields().items():
        assert field.help in explain_text(loaded, path)


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("tokenizer.wroker_num", "did you mean tokenizer.worker_num?"),
        ("--api-key", "did you mean server.api_key?"),
        ("gpu", "gpu.total_mib"),
        ("zzz", "kimi-serve plan"),
    ],
)
def test_an_unknown_path(path: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        explain_text(make_loaded(), path)
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (16, "16"),
        ("prod/model-1", "prod/model-1"),
        ("***", "***"),
        ("16", '"16"'),
        ("null", '"null"'),
        ("", '""'),
        ("a b", '"a b"'),
        ("\x1b[31m", '"\\u001b[31m"'),
        (["a"], '["a"]'),
    ],
)
def test_values_as_text(value: Any, text: str) -> None:
    assert show(value) == text


def test_a_wide_cell_pushes_its_own_row_only() -> None:
    assert columns([("a", "x" * 50, "1"), ("bb", "y", "2")], indent="") == [
        f"a   {'x' * 50}  1",
        "bb  y  2",
    ]
