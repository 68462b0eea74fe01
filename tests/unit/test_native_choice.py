"""Which path is taken, what a faulty kernel leads to, and that all paths give the same bytes."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from image_samples import DATA, DISPLAY, KIMI, encoded, picture
from native_levels import LEVELS, needs_kernel

from kimi_serve.preprocess.checkpoint_files.image_parameters import COLOURS, COUNTS
from kimi_serve.preprocess.images.image_processor import ImageProcessor
from kimi_serve.preprocess.images.kimi import ResizePlan, plan_resize
from kimi_serve.preprocess.images.normalise import Buffer
from kimi_serve.preprocess.images.picture import Picture
from kimi_serve.preprocess.native import choice, kernel, self_test
from kimi_serve.preprocess.native.choice import KernelChoice, choose_kernel
from kimi_serve.schemas.errors import PlanError
from kimi_serve.schemas.worker import ResizeConfig


@pytest.fixture(autouse=True)
def _fresh_choice() -> Iterator[None]:
    """The choice is made once a process; here, once a test."""
    choice._tested.cache_clear()  # pyright: ignore[reportPrivateUsage]
    yield
    choice._tested.cache_clear()  # pyright: ignore[reportPrivateUsage]


def test_pure_can_be_asked_for() -> None:
    assert choose_kernel("pure") == KernelChoice("pure", "image.kernel is pure", None)


@needs_kernel
def test_the_best_level_that_passes_is_taken() -> None:
    chosen = choose_kernel()
    assert (chosen.path, chosen.level, chosen.faults) == (f"native {LEVELS[0]}", LEVELS[0], ())
    assert choose_kernel("native") == chosen


def test_without_the_module_the_pure_path_is_taken(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(kernel, "missing", "the native kernel was not built (no C compiler?)")
    with caplog.at_level(logging.INFO):
        choose_kernel().log()
    assert caplog.record_tuples == [
        (
            choice.__name__,
            logging.INFO,
            "images are preprocessed by the pure path: the native kernel was not built "
            "(no C compiler?)",
        )
    ]
    with pytest.raises(PlanError, match="is native, but the native kernel was not"):
        choose_kernel("native")


@needs_kernel
def test_a_level_that_fails_is_left_out_loudly(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    best, *others = LEVELS

    def find_fault(level: str) -> str | None:
        return "3 bytes differ" if level == best else None

    monkeypatch.setattr(self_test, "find_fault", find_fault)
    chosen = choose_kernel()
    assert chosen.level == (others[0] if others else None)
    assert chosen.faults == (f"{best}: 3 bytes differ",)
    assert (chosen.unfilter is not None) is bool(others)
    with caplog.at_level(logging.INFO):
        chosen.log()
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert f"is not to be trusted: {best}: 3 bytes differ" in caplog.text


@needs_kernel
def test_when_all_fail_the_pure_path_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_fault(_level: str) -> str | None:
        return "wrong"

    monkeypatch.setattr(self_test, "find_fault", find_fault)
    chosen = choose_kernel()
    assert (chosen.path, len(chosen.faults)) == ("pure", len(LEVELS))
    with pytest.raises(PlanError, match="no level of the kernel passed"):
        choose_kernel("native")


@needs_kernel
@pytest.mark.parametrize("level", LEVELS)
def test_the_self_test_passes_here(level: str) -> None:
    assert self_test.find_fault(level) is None


@needs_kernel
def test_the_self_test_sees_one_wrong_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    right = self_test.resize

    def wrong(*arguments: Any, **options: Any) -> Any:
        pixels = right(*arguments, **options)
        if options["vertical_first"]:
            pixels[-1, -1, -1] ^= 1
        return pixels

    monkeypatch.setattr(self_test, "resize", wrong)
    fault = self_test.find_fault(LEVELS[0])
    assert fault is not None
    assert fault.startswith("RGB 97x61 -> 43x29, vertical pass first: 1 of 3741 bytes differ")


@needs_kernel
def test_the_self_test_sees_a_wrong_table(monkeypatch: pytest.MonkeyPatch) -> None:
    right = self_test.normalisation_table

    def wrong(config: ResizeConfig) -> Any:
        return right(config) + 1

    monkeypatch.setattr(self_test, "normalisation_table", wrong)
    fault = self_test.find_fault(LEVELS[0])
    assert fault == "float32 patches of RGB 131x94 differ from the pure path"


@needs_kernel
def test_the_self_test_turns_a_refusal_into_a_fault() -> None:
    assert self_test.find_fault("sse9") == "this machine has no level 'sse9'"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "uint8"])
@pytest.mark.parametrize("policy", ["display", "checkpoint"])
def test_the_processor_gives_the_same_either_way(policy: Any, dtype: Any) -> None:
    rules = replace(DISPLAY, policy=policy, dtype=dtype)
    config = replace(KIMI, in_patch_limit=64)
    pure, best = ImageProcessor(config, rules, "pure"), ImageProcessor(config, rules)
    assert pure.kernel.path == "pure"
    files = [
        encoded(picture(231, 178), "JPEG"),
        encoded(picture(63, 340).convert("RGBA"), "PNG"),
        encoded(picture(90, 31).convert("P"), "PNG"),
        encoded(picture(20, 31).convert("L"), "JPEG"),
        encoded(picture(200, 100).convert("CMYK"), "JPEG"),
        encoded(picture(300, 100), "WEBP"),
        (DATA / "images" / "exif_rot8.jpg").read_bytes(),
    ]
    for data in files:
        one, expected = pure.process_array(data)
        two, got = best.process_array(data)
        assert got.tobytes() == expected.tobytes()
        assert (one.sha256, one.shape) == (two.sha256, two.shape)
    best.release_memory()
    assert best.process_array(files[0])[1].tobytes() == pure.process_array(files[0])[1].tobytes()


def test_an_answer_keeps_nothing_of_the_pooled_pixels() -> None:
    processor = ImageProcessor(KIMI, DISPLAY)
    first = processor.process_array(encoded(picture(60, 50), "JPEG"))[1]
    copy = first.copy()
    processor.process_array(encoded(picture(70, 50).rotate(180), "JPEG"))
    assert np.array_equal(first, copy)


@needs_kernel
def test_png_rows_that_differ_leave_pngs_to_pillow(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def wrong(rows: bytearray, *others: Any) -> bool:
        rows[-1] ^= 1
        return kernel.unfilter(rows, *others)

    assert self_test.find_png_fault() is None
    monkeypatch.setattr(self_test, "unfilter", wrong)
    chosen = choose_kernel()
    assert (chosen.level, chosen.unfilter) == (LEVELS[0], None)
    with caplog.at_level(logging.INFO):
        chosen.log()
    assert "is not to be trusted: PNG rows: 3 channels: " in caplog.text


@needs_kernel
def test_a_module_of_another_version_falls_back_loudly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "_kernel", SimpleNamespace())
    monkeypatch.setattr(kernel, "supported_levels", lambda: LEVELS)
    chosen = choose_kernel()
    assert (chosen.path, chosen.unfilter) == ("pure", None)
    assert len(chosen.faults) == 1 + len(LEVELS)


def test_a_module_that_cannot_be_loaded_is_said_loudly(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    words = "the native kernel cannot be loaded: file too short"
    monkeypatch.setattr(kernel, "missing", words)
    monkeypatch.setattr(kernel, "is_damaged", True)
    chosen = choose_kernel()
    assert (chosen.path, chosen.faults) == ("pure", (words,))
    with caplog.at_level(logging.INFO):
        chosen.log()
    assert {record.levelname for record in caplog.records} == {"WARNING"}


def test_pure_does_not_even_load_the_module() -> None:
    code = (
        "import sys\n"
        "from kimi_serve.preprocess.images.image_processor import ImageProcessor\n"
        "from kimi_serve.preprocess.workers import worker\n"
        "from image_samples import DISPLAY, KIMI, encoded, picture\n"
        "worker.preload()\n"
        "ImageProcessor(KIMI, DISPLAY, 'pure').process_array(encoded(picture(), 'PNG'))\n"
        "print([name for name in sys.modules if name.endswith('_kernel')])\n"
    )
    env = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


@needs_kernel
def test_the_self_test_sees_what_is_only_wrong_past_the_caches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Wrong(kernel.NativeWriter):
        def write(self, picture: Picture, plan: ResizePlan, out: Buffer) -> None:
            super().write(picture, plan, out)
            if self._stream_from == 0:
                np.frombuffer(out, np.uint8)[-1] ^= 1

    monkeypatch.setattr(self_test, "NativeWriter", Wrong)
    fault = self_test.find_fault(LEVELS[0])
    assert fault == "uint8 patches of RGB 131x94 differ, streamed, from the pure path"


@needs_kernel
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "uint8"])
@pytest.mark.parametrize("excess", [0, 1])
def test_patches_larger_than_the_kernels_are_made_by_the_pure_path(
    excess: int, dtype: Any, caplog: pytest.LogCaptureFixture
) -> None:
    side = kernel._kernel.MAX_PATCH + excess  # pyright: ignore[reportPrivateUsage]
    config = replace(KIMI, patch_size=side)
    rules = replace(DISPLAY, dtype=dtype)
    pure, best = ImageProcessor(config, rules, "pure"), ImageProcessor(config, rules)
    with caplog.at_level(logging.INFO):
        best.kernel.log()
    words = f"by the pure path: the checkpoint's patch_size is {side}, and the native kernel takes"
    assert (words in caplog.text) is bool(excess)
    assert (best.kernel.level is None) is bool(excess)
    for data in (encoded(picture(300, 90), "JPEG"), encoded(picture(300, 90), "PNG")):
        facts, got = best.process_array(data)
        assert facts.shape == got.shape
        assert got.tobytes() == pure.process_array(data)[1].tobytes()


@needs_kernel
def test_a_kernel_that_is_demanded_must_take_the_patches() -> None:
    config = replace(KIMI, patch_size=1024)
    with pytest.raises(
        PlanError, match=r"image\.kernel is native, but .* patch_size is 1024"
    ) as it:
        choose_kernel("native", config)
    assert it.value.hint == "set image.kernel: auto"


EXTREMES = [
    {name: bounds[end] for (name, bounds), end in zip(COUNTS.items(), ends, strict=True)}
    for ends in product((0, 1), repeat=len(COUNTS))
]
COLOUR_EXTREMES = [
    {name: (bounds[end],) * 3 for (name, bounds), end in zip(COLOURS.items(), ends, strict=True)}
    for ends in product((0, 1), repeat=len(COLOURS))
]


@pytest.mark.parametrize("colours", COLOUR_EXTREMES)
@pytest.mark.parametrize("counts", EXTREMES)
def test_what_the_checkpoint_reader_allows_every_path_takes(
    counts: dict[str, int], colours: dict[str, tuple[float, float, float]]
) -> None:
    """Whatever the kernel refuses must be known before the first image."""
    values: dict[str, Any] = {**counts, **colours}
    config = replace(KIMI, **values)
    if config.patch_size * config.merge_kernel_size > 4096:
        config = replace(config, merge_kernel_size=2)  # one block would need gigabytes
    choice = choose_kernel("auto", config)
    for size in ((70, 1), (1, 1)):
        plan = plan_resize(*size, config)
        out = np.empty(plan.num_patches * 3 * config.patch_size**2, np.uint8)
        choice.writer(config, "uint8").write(picture(*size), plan, out)
