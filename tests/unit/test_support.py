"""The support table: complete, with sources, and found by version."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import pytest

from kimi_serve.schemas.support import load_support
from kimi_serve.schemas.vocabulary import EngineKind

TABLE = load_support()
REGISTRY = Path(__file__).parents[1] / "data" / "sglang-0.5.23-mm-processors.tsv"
K25 = "KimiK25ForConditionalGeneration"
K25_RESAVED = "Kimi_K25ForConditionalGeneration"


def registry() -> dict[str, dict[str, str]]:
    with REGISTRY.open(encoding="utf-8") as lines:
        return {row["arch"]: row for row in csv.DictReader(lines, delimiter="\t")}


def test_every_architecture_of_sglangs_registry_has_exactly_one_row() -> None:
    rows = [row for row in TABLE.rows if row.engine == "sglang"]
    counted = Counter(name for row in rows for name in row.architectures)
    assert counted == Counter(registry().keys())
    assert len(counted) == 85


def test_no_engine_lists_an_architecture_twice() -> None:
    counted = Counter((row.engine, name) for row in TABLE.rows for name in row.architectures)
    assert max(counted.values()) == 1


def test_a_row_decodes_on_the_gpu_only_where_the_registry_says_so() -> None:
    # The registry cannot tell for these: no image path, or the vision tower's processor decides.
    exempt = {"audio only", "Mistral 3"}
    for row in TABLE.rows:
        if row.engine == "sglang" and row.family not in exempt:
            for name in row.architectures:
                on_gpu = registry()[name]["gpu_image_decode"] != "False"
                assert (row.decode == "cuda") == on_gpu, name


def test_rows_are_whole() -> None:
    for row in TABLE.rows:
        assert len(row.source) > 30, row.family
        assert row.family
        assert bool(row.since) == (row.engine != "none")
        assert row.decode in ("cpu", "cuda")
        assert row.preprocess in ("cpu", "cuda")
        assert row.flag in ("honoured", "ignored", "needless")


def test_needless_means_that_both_are_on_the_cpu_and_ignored_that_one_is_not() -> None:
    for row in TABLE.rows:
        on_gpu = "cuda" in (row.decode, row.preprocess)
        if row.flag != "honoured":
            assert on_gpu == (row.flag == "ignored"), row.family
        assert not (row.decode == "cpu" and row.force_decode), row.family
        assert not (row.preprocess == "cpu" and row.force_preprocess), row.family


def test_sources_name_no_local_path() -> None:
    for row in TABLE.rows:
        assert " /" not in row.source


@pytest.mark.parametrize(
    ("engine", "honoured"), [("none", (K25, K25_RESAVED)), ("sglang", (K25,)), ("vllm", ())]
)
def test_who_honours_the_flag(engine: EngineKind, honoured: tuple[str, ...]) -> None:
    assert TABLE.honouring(engine, TABLE.newest.get(engine, "")) == honoured


def test_the_built_in_workers_have_no_versions() -> None:
    assert TABLE.newest.keys() == {"sglang", "vllm"}
    assert TABLE.is_known("none", "")
    assert TABLE.built_in() == (K25, K25_RESAVED)
    assert TABLE.find("none", "", [K25_RESAVED]) is not None


@pytest.mark.parametrize(
    ("version", "is_known"), [("0.5.23", True), ("0.6", True), ("0.5.22", False), ("main", False)]
)
def test_versions_that_any_row_covers(version: str, is_known: bool) -> None:
    assert TABLE.is_known("sglang", version) is is_known


@pytest.mark.parametrize(
    ("version", "is_found"),
    [
        ("0.5.23", True),
        ("0.5.23.post1", True),
        ("0.5.23+cu130", True),
        ("0.6", True),
        ("0.5.22", False),
        ("0.5", False),
        ("0.4.99", False),
        ("main", False),
    ],
)
def test_ranges(version: str, is_found: bool) -> None:
    assert (TABLE.find("sglang", version, [K25]) is not None) == is_found


def test_the_first_known_architecture_decides() -> None:
    row = TABLE.find("sglang", "0.5.23", ["Nobody", K25, "Qwen2VLForConditionalGeneration"])
    assert row is not None
    assert K25 in row.architectures
    assert TABLE.find("sglang", "0.5.23", []) is None
    assert TABLE.find("none", "", ["KimiK3ForConditionalGeneration"]) is None
