"""How GPUs are named: what CUDA would read otherwise is refused."""

from __future__ import annotations

import pytest

from kimi_serve.schemas.gpu_ids import check_gpu_ids, visible_ids


@pytest.mark.parametrize("ids", [None, (), ("0", "1"), ("GPU-8f1c", "1"), ("MIG-GPU-ab/1/2",)])
def test_gpus_that_are_named(ids: tuple[str, ...] | None) -> None:
    assert check_gpu_ids(ids) == ids


@pytest.mark.parametrize(
    ("ids", "problem"),
    [
        (("0", "0"), "'0' is there twice"),
        (("1", "01"), "'01' is there twice"),
        (("GPU-ab", "GPU-AB"), "'GPU-AB' is there twice"),
        (("first",), "'first' names no GPU"),
        (("0", ""), "'' names no GPU"),
        (("-1",), "'-1' names no GPU"),
        (("0 ",), "'0 ' names no GPU"),
        (("${A}",), "names no GPU"),
        (("0,1",), "'0,1' names no GPU"),
        (("\u0663",), "names no GPU"),
    ],
)
def test_what_names_none(ids: tuple[str, ...], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        check_gpu_ids(ids)


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("0, 1", ("0", "1")),
        ("", ()),
        ("-1", ()),
        ("0,-1,1", ("0",)),
        ("0,0", ()),
        ("NoDevFiles", ()),
        ("GPU-a,2", ("GPU-a", "2")),
    ],
)
def test_a_variable_is_read_as_cuda_reads_it(text: str, ids: tuple[str, ...]) -> None:
    assert visible_ids(text) == ids
