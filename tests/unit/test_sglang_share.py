"""SGLang's own share of a GPU, against what the engine itself computed."""

from __future__ import annotations

import pytest

from kimi_serve.launcher.budget.sglang_share import (
    EngineShape,
    automatic_share,
    reserve,
    vision_factor,
)
from kimi_serve.schemas.limits import VersionRange, VisionTower, load_limits

K25 = "KimiK25ForConditionalGeneration"
TOWER = load_limits().tower("sglang", "0.5.23", [K25])

# mem_fraction_static of sglang 0.5.23, run on the CPU with the size of the GPU stubbed and the
# shape of Kimi-K2.5 (MLA, 27 layers of width 1152): prepare_server_args(...).resolve_once().
ENGINE = [
    (EngineShape(15360), 0.688670400390625),
    (EngineShape(24576), 0.6550101562499999),
    (EngineShape(40960, 2), 0.75508115234375),
    (EngineShape(46068, 4), 0.7614493066406249),
    (EngineShape(81559, 8), 0.7441643164062499),
    (EngineShape(81559, 16, 2), 0.7095943359375),
    (EngineShape(143771, 8), 0.816033486328125),
    (EngineShape(183359, 8), 0.7750953515625),
    (EngineShape(143771, 8, chunk=2048), 0.845145048828125),
    (EngineShape(143771, 8, max_running=64), 0.821491904296875),
    (EngineShape(143771, 8, graph_batch=128), 0.8205821679687499),
    (EngineShape(143771, 8, has_graphs=False), 0.822401640625),
]


@pytest.mark.parametrize(("shape", "share"), ENGINE, ids=str)
def test_the_share_is_the_engines(shape: EngineShape, share: float) -> None:
    assert automatic_share(shape, TOWER)[0] == share


def test_a_server_without_images_keeps_the_towers_part() -> None:
    assert automatic_share(EngineShape(143771, 8), None)[0] == 0.897


def test_the_published_headroom_of_an_h200() -> None:
    share, told = automatic_share(EngineShape(143771, 8), TOWER)
    assert round(share, 3) == 0.816
    assert told == "0.816 = (1 - 14848 / 143771) x 0.9097 for the vision tower"
    # 26.4 in thousands of MiB, which is how it was published; 25.8 GiB.
    assert round(143771 * (1 - share)) == 26449


def test_the_parts_of_the_reserve_are_told() -> None:
    found = reserve(EngineShape(143771, 8))
    assert (found.graphs_mib, found.activations_mib) == (2560, 12288)
    assert found.graphs == "512 + batches up to 512 x 2 + 8 x 128 for communication"
    least = reserve(EngineShape(143771, 8, chunk=2048))
    assert least.total_mib == 10240
    assert "the least on a GPU of this size" in least.activations
    assert "batches" not in reserve(EngineShape(81559, has_graphs=False)).graphs


@pytest.mark.parametrize(("layers", "width", "factor"), [(1, 1, 0.9975), (400, 4096, 0.76)])
def test_the_factor_has_bounds(layers: int, width: int, factor: float) -> None:
    tower = VisionTower(VersionRange("sglang", "0.5.23", ""), (K25,), layers, width, "")
    assert vision_factor(tower) == pytest.approx(factor)


def test_only_checked_models_have_a_tower() -> None:
    assert load_limits().tower("sglang", "0.5.22", [K25]) is None
    assert load_limits().tower("sglang", "0.5.23", ["FutureForConditionalGeneration"]) is None
