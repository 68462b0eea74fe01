"""A name that is spelt like another and means the opposite is named, and never put in its place."""

from __future__ import annotations

import pytest

from kimi_serve.launcher.engine_hints import hint_for_flag
from kimi_serve.launcher.sources.opposites import means_opposite
from kimi_serve.launcher.sources.profile import read_profile_text
from kimi_serve.launcher.sources.suggest import suggest_path, suggest_variable
from kimi_serve.schemas.engine_facts import engine_table


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("gpu_preprocessing", "force_cpu_preprocessing"),
        ("no_trust_remote_code", "trust_remote_code"),
        ("init", "skip_init"),
        ("min_pixels", "max_pixels"),
        ("--enable-cuda-graph", "--disable-cuda-graph"),
    ],
)
def test_opposites(name: str, other: str) -> None:
    assert means_opposite(name, other)
    assert means_opposite(other, name)


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("wroker_num", "worker_num"),
        ("disable_gpu_preprocessing", "force_cpu_preprocessing"),
        ("skip_tokenizer_init", "skip_init"),
        ("gpu_worker_budget_mib", "worker_budget_mib"),
    ],
)
def test_no_opposites(name: str, other: str) -> None:
    assert not means_opposite(name, other)


@pytest.mark.parametrize(
    "text",
    [
        "image: {gpu_preprocessing: off}",
        "model: {no_trust_remote_code: true}",
        "tokenizer: {init: true}",
        "image: {min_pixels: 3}",
    ],
)
def test_a_key_is_not_renamed_to_its_opposite(text: str) -> None:
    (finding,) = read_profile_text(text, "p.yaml", "/", None)[-1].findings
    assert finding.message.endswith("means the opposite")
    assert finding.fix is None


def test_paths_variables_and_flags_likewise() -> None:
    assert suggest_path("image.force_gpu_preprocessing") is None
    assert suggest_variable("KIMI_SERVE_IMAGE__FORCE_GPU_PREPROCESSING") is None
    table = engine_table("sglang")
    assert table is not None
    hint = hint_for_flag("--enable-radix-cache", table)
    assert (hint.instead, hint.reason) == ("", "none")
    assert "--disable-radix-cache, which means the opposite" in hint.text
