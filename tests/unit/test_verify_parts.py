"""The parts of `verify`: images, reference, differences, promises, memory, pages."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from image_samples import ALL_FORMATS, DATA, DISPLAY, KIMI, encoded, picture
from PIL import Image

from kimi_serve.launcher.verify.fleet import WorkerState
from kimi_serve.launcher.verify.gpu_memory import GpuPeak, open_gpu_memory
from kimi_serve.launcher.verify.html import report_page
from kimi_serve.launcher.verify.images import choose, from_folder, generated, load_samples
from kimi_serve.launcher.verify.parity import EXACT, GPU_JPEG, Made, compare
from kimi_serve.launcher.verify.promises import check_gpu_memory, check_zero_contexts
from kimi_serve.launcher.verify.reference import reference
from kimi_serve.launcher.verify.results import (
    Comparison,
    LoadPoint,
    NotMeasured,
    Promise,
    Report,
)
from kimi_serve.launcher.verify.svg import Series, line_plot
from kimi_serve.launcher.verify.text import report_lines
from kimi_serve.preprocess.images.image_processor import ImageProcessor
from kimi_serve.preprocess.images.sniff import sniff
from kimi_serve.schemas.errors import ConfigError
from kimi_serve.schemas.image_facts import ImageFacts
from kimi_serve.schemas.messages import WorkerReport

# The images


def is_small(name: str) -> bool:
    return not re.search(r"\d{4}", name)


def test_generated_images_are_the_same_every_time_and_many_kinds() -> None:
    one, two = generated(ALL_FORMATS, is_small), generated(ALL_FORMATS, is_small)
    assert [sample.data for sample in one] == [sample.data for sample in two]
    assert len({sample.name for sample in one}) == len(one) >= 20
    assert {sniff(sample.data).format for sample in one} == set(ALL_FORMATS)
    facts = [ImageProcessor(KIMI, DISPLAY).process_array(sample.data)[0] for sample in one]
    assert sum(image.orientation_applied for image in facts) == 7


def test_only_accepted_formats_are_used() -> None:
    assert {sniff(sample.data).format for sample in generated(("png",), is_small)} == {"png"}
    assert {sniff(sample.data).format for sample in load_samples(("gif",))} == {"gif"}


@pytest.mark.parametrize("name", ALL_FORMATS)
def test_every_format_alone_has_images_that_are_made_as_the_checkpoint_does(name: str) -> None:
    images = choose(None, replace(DISPLAY, policy="checkpoint", formats=(name,)))
    assert images.left_out == []
    assert {sniff(each.data).format for each in images.load_samples} == {name}
    processor = ImageProcessor(KIMI, replace(DISPLAY, policy="checkpoint"))
    for sample in (each for each in images.samples if is_small(each.name)):
        facts, values = processor.process_array(sample.data)
        wanted = reference(sample.data, KIMI)
        ours = Made(values, facts.grid_thw, facts.num_tokens)
        theirs = Made(wanted.values, wanted.grid_thw, wanted.tokens)
        assert compare(sample.name, facts, KIMI, ours, theirs, EXACT).holds, sample.name


def test_images_that_the_settings_refuse_are_left_out() -> None:
    small = choose(None, replace(DISPLAY, formats=("png",), max_pixels=1000))
    assert [sample.name for sample in small.samples] == [
        *("photo_1x1.png", "photo_13x13.png", "photo_28x28.png", "photo_57x1.png"),
    ]
    (left_out,) = small.left_out
    assert "photo_640x480.png" in left_out.what
    assert "image.max_pixels 1000" in left_out.why
    # Those of a phone are too large here, and something must be loaded.
    few = choose(None, replace(DISPLAY, formats=("png", "jpeg"), max_pixels=120_000))
    assert few.load_samples == few.samples


@pytest.mark.parametrize("limit", [{"max_pixels": 0}, {"max_bytes": 10}])
def test_no_image_that_the_settings_accept_is_the_settings_fault(limit: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=r"image.formats gif, image.max_pixels") as raised:
        choose(None, replace(DISPLAY, formats=("gif",), **limit))
    assert "--images FOLDER" in (raised.value.hint or "")


def test_a_format_that_pillow_cannot_write_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    Image.init()
    monkeypatch.delitem(Image.SAVE, "AVIF")
    images = choose(None, replace(DISPLAY, formats=("avif", "gif")))
    assert [sample.name for sample in images.samples] == ["gif_256x192.gif"]
    assert [left_out.what for left_out in images.left_out] == ["images in avif"]
    with pytest.raises(ConfigError, match=r"image.formats avif"):
        choose(None, replace(DISPLAY, formats=("avif",)))


def test_a_folder_gives_its_images_in_order(tmp_path: Path) -> None:
    (tmp_path / "b.png").write_bytes(encoded(picture(), "PNG"))
    (tmp_path / "a.jpg").write_bytes(encoded(picture(), "JPEG"))
    (tmp_path / "notes.txt").write_text("no image")
    samples, left_out = from_folder(tmp_path, ("png", "jpeg"))
    assert [sample.name for sample in samples] == ["a.jpg", "b.png"]
    assert left_out == [NotMeasured("notes.txt", "no image in one of image.formats (png, jpeg)")]
    with pytest.raises(ConfigError, match="no image of an accepted format"):
        from_folder(tmp_path, ("webp",))
    with pytest.raises(ConfigError, match="--images"):
        from_folder(tmp_path / "absent", ("png",))


# The reference, against what the checkpoint's own processor gave


def test_the_reference_equals_the_recorded_answers() -> None:
    cases = json.loads((DATA / "golden" / "golden.json").read_text())["cases"]
    checked = 0
    for case in cases:
        data = (DATA / "golden" / case["file"]).read_bytes()
        config = case["config"] | {
            name: tuple(case["config"][name]) for name in ("image_mean", "image_std")
        }
        if case["width"] * case["height"] > 10**6:
            continue
        made = reference(data, replace(KIMI, **config))
        assert list(made.grid_thw) == case["grid_thw"]
        assert made.tokens == case["num_tokens"]
        expected = case.get("hfirst_pixel_sha256", case["pixel_sha256"])
        assert hashlib.sha256(made.values.tobytes()).hexdigest() == expected
        checked += 1
    assert checked > 20


# Differences


def facts_of(width: int = 28, height: int = 28, **changes: Any) -> ImageFacts:
    image = ImageProcessor(KIMI, DISPLAY).process_array(encoded(picture(width, height), "PNG"))[0]
    return replace(image, **changes)


def made_of(values: Any, tokens: int = 1) -> Made:
    return Made(np.asarray(values, np.float32), (1, 2, 2), tokens)


ZEROS = np.zeros((4, 3, 14, 14), np.float32)


def test_differences_are_in_levels() -> None:
    other = ZEROS.copy()
    other[0, 0, 0, 0] = 2 / 127.5
    other[1, 0, 0, 0] = 0.2 / 127.5
    found = compare("x", facts_of(), KIMI, made_of(ZEROS), made_of(other), GPU_JPEG)
    assert found.max_levels == pytest.approx(2, abs=1e-4)
    assert found.mean_levels == pytest.approx(2.2 / other.size, abs=1e-5)
    assert (found.share, found.level_share) == (2 / other.size, 1 / other.size)
    assert found.holds
    assert not replace(found, bound=EXACT).holds


def test_one_bit_breaks_a_promise_of_equality() -> None:
    other = ZEROS.copy()
    other[3, 2, 13, 13] = np.float32(-0.0)
    found = compare("x", facts_of(), KIMI, made_of(ZEROS), made_of(other), EXACT)
    assert found.max_levels == 0
    assert not found.holds
    assert compare("x", facts_of(), KIMI, made_of(ZEROS), made_of(ZEROS), EXACT).holds


def test_other_grids_tokens_or_shapes_never_hold() -> None:
    zeros = made_of(ZEROS)
    for other in (
        Made(ZEROS, (1, 4, 1), 1),
        made_of(ZEROS, tokens=2),
        made_of(ZEROS[:2]),
    ):
        assert not compare("x", facts_of(), KIMI, zeros, other, GPU_JPEG).holds


# Promises


def state(**changes: Any) -> WorkerState:
    report: dict[str, Any] = {
        "index": 0, "pid": 11, "decode_device": "cpu", "preprocess_device": "cpu",
        "cuda_visible_devices": "", "cuda_libraries": (), "torch_imported": False, "threads": 2,
        "image_thread": 12, "versions": {}, "build_ms": 1.0,
    }  # fmt: skip
    libraries = changes.pop("libraries", ())
    return WorkerState(WorkerReport(**(report | changes)), libraries)


def empty_report() -> Report:
    return Report("1.0", "2026-01-01T00:00:00+00:00", {"cores": "2"}, {"images": "1"})


@pytest.mark.parametrize(
    ("changes", "listed", "broken"),
    [
        ({}, (), ""),
        ({}, (4, 5), ""),
        ({"torch_imported": True}, (), "torch is not imported"),
        ({"libraries": ("libcuda.so.1",)}, (), "no library of CUDA or torch"),
        ({"cuda_visible_devices": None}, (), "CUDA_VISIBLE_DEVICES is empty"),
        ({}, (11, 4), "NVML sees none"),
    ],
)
def test_zero_contexts(changes: dict[str, Any], listed: tuple[int, ...], broken: str) -> None:
    report = empty_report()
    check_zero_contexts(report, [state(**changes)], "1 worker", set(listed))
    failed = [promise.text for promise in report.promises if not promise.holds]
    assert len(report.promises) == 4
    assert [broken in text for text in failed] == ([True] if broken else [])
    assert report.holds is (not broken)


def test_without_nvml_its_view_is_not_claimed() -> None:
    report = empty_report()
    check_zero_contexts(report, [state()], "1 worker", None)
    assert not any("NVML" in promise.text for promise in report.promises)


def point(**changes: Any) -> LoadPoint:
    return replace(LoadPoint("GPU", 2, 90, 30.0, 20.0, 60.0, 0.5, 16.0, 9.0, 900.0), **changes)


@pytest.mark.parametrize(
    ("workers_mib", "total_mib", "holds"),
    [((700.0, 750.0), 1500.0, True), ((1200.0, 1200.0), 2500.0, False), (None, 1500.0, True)],
)
def test_memory_against_the_plan(
    workers_mib: tuple[float, ...] | None, total_mib: float, holds: bool
) -> None:
    report = empty_report()
    found = point(gpu_workers_mib=workers_mib, gpu_total_mib=total_mib, gpu_predicted_mib=2278.0)
    check_gpu_memory(report, found)
    (promise,) = report.promises
    assert promise.holds is holds
    assert "2278 MiB" in promise.text
    assert bool(report.not_measured) is (workers_mib is None)


# NVML


class FakeNVMLError(Exception):
    pass


class FakeNvml:
    NVMLError = FakeNVMLError

    def __init__(self, processes: dict[int, int | None] | None) -> None:
        self.processes = processes
        self.used = 3 * 2**30

    def nvmlInit(self) -> None:
        if self.processes is None:
            raise self.NVMLError("Driver Not Loaded")

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetMemoryInfo(self, _handle: int) -> Any:
        return SimpleNamespace(used=self.used)

    def nvmlDeviceGetComputeRunningProcesses(self, _handle: int) -> list[Any]:
        items = (self.processes or {}).items()
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in items]


def test_gpu_memory_by_process() -> None:
    memory, why = open_gpu_memory(0, lambda _: FakeNvml({7: 700 * 2**20, 8: 800 * 2**20}))
    assert why == ""
    assert memory is not None
    assert memory.used_mib() == 3072
    assert memory.of([8, 7]) == (800, 700)
    assert memory.of([7, 9]) is None


def test_the_peak_is_the_most_of_all_looks() -> None:
    nvml = FakeNvml({7: 700 * 2**20, 8: 800 * 2**20})
    memory, _ = open_gpu_memory(0, lambda _: nvml)
    assert memory is not None
    peak = GpuPeak(memory)
    assert (peak.by_process, peak.growth_mib) == (None, None)
    peak.look([7, 8])
    later: list[tuple[dict[int, int | None], int]] = [
        ({7: 900 * 2**20, 8: 1}, 5 * 2**30),
        ({7: 1}, 4 * 2**30),
    ]
    for processes, used in later:
        nvml.processes, nvml.used = processes, used
        peak.look([7, 8])
    assert (peak.by_process, peak.growth_mib) == ((900, 800), 2048)


def test_a_driver_that_names_no_sizes_is_no_zero() -> None:
    memory, _ = open_gpu_memory(0, lambda _: FakeNvml({7: None}))
    assert memory is not None
    assert memory.by_process() == {7: None}
    assert memory.of([7]) is None


@pytest.mark.parametrize("name", ["MemoryInfo", "ComputeRunningProcesses"])
@pytest.mark.parametrize("error", [RuntimeError("gone"), FakeNVMLError("gone"), TypeError("gone")])
def test_a_driver_that_fails_later_is_a_reason(
    name: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise error

    memory, _ = open_gpu_memory(0, lambda _: FakeNvml({7: 7}))
    assert memory is not None
    monkeypatch.setattr(FakeNvml, f"nvmlDeviceGet{name}", fail)
    asked = memory.used_mib() if name == "MemoryInfo" else memory.by_process()
    assert asked is None
    assert memory.fault.endswith("gone")
    assert memory.of([7]) is None or name == "MemoryInfo"


@pytest.mark.parametrize("error", [RuntimeError("odd"), OSError("odd"), UnicodeError("odd")])
def test_a_module_that_fails_in_its_own_way_is_a_reason(error: Exception) -> None:
    def fail(*_: object) -> Any:
        raise error

    assert "odd" in open_gpu_memory(0, fail)[1]
    assert "odd" in open_gpu_memory(0, lambda _: SimpleNamespace(nvmlInit=fail))[1]


def test_no_nvml_is_a_reason() -> None:
    def absent(_: str) -> None:
        raise ImportError

    assert open_gpu_memory(0, absent) == (
        None,
        "nvidia-ml-py is not installed (pip install 'kimi-serve[gpu]')",
    )
    assert open_gpu_memory(0, lambda _: FakeNvml(None)) == (None, "NVML: Driver Not Loaded")


# Pages


class Checker(HTMLParser):
    """Notes tags that do not close, and everything that would load something."""

    VOID = ("meta", "line", "circle", "rect", "polyline")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loads += [value or "" for name, value in attrs if name in ("src", "href", "srcset")]
        if tag not in ("meta",):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def full_report() -> Report:
    report = empty_report()
    row = compare("<a&b>.png", facts_of(), KIMI, made_of(ZEROS), made_of(ZEROS), EXACT)
    bad = replace(row, name="bad.jpg", max_levels=9.0, bound=GPU_JPEG, note="redone on the CPU")
    report.comparisons.append(Comparison("one <beside> other", (row, bad)))
    report.loads += [
        point(configuration="forced CPU", workers=1, gpu_total_mib=None),
        point(configuration="GPU", workers=1, gpu_total_mib=700.0, gpu_predicted_mib=1139.0),
        point(configuration="GPU", workers=2, gpu_total_mib=1400.0, gpu_predicted_mib=2278.0),
    ]
    report.promises.append(Promise("kept", True, "seen"))
    report.not_measured.append(NotMeasured("a thing", "there is none"))
    return report


def test_the_page_is_whole_needs_nothing_and_escapes() -> None:
    page = report_page(full_report())
    checker = Checker()
    checker.feed(page)
    assert checker.open == []
    assert checker.loads == []
    assert not re.search(r"https?://", page)
    assert page.count("<svg") == 6
    assert "&lt;a&amp;b&gt;.png" in page
    assert "<a&b>" not in page
    assert 'class="broken"' in page
    assert "a thing" in page


def test_the_text_says_what_is_broken_and_what_is_missing() -> None:
    lines = list(report_lines(full_report()))
    assert sum(line.endswith("BROKEN") for line in lines) == 1
    assert "not measured  a thing: there is none" in lines
    assert lines[-1] == "BROKEN: see above"
    assert list(report_lines(empty_report()))[-1] == "all that was measured holds"


def test_the_document_is_json_with_verdicts() -> None:
    found = json.loads(json.dumps(full_report().document()))
    assert found["holds"] is False
    assert [image["holds"] for image in found["comparisons"][0]["images"]] == [True, False]
    assert found["loads"][2]["gpu_predicted_mib"] == 2278.0


@pytest.mark.parametrize("values", [[], [0.0], [0.03, 0.07], [1234.5], [7, 70, 700]])
def test_plots_stay_inside_their_frame(values: list[float]) -> None:
    drawn = line_plot("t", "x", "y", [Series("s", list(enumerate(values)))])
    for x, y in re.findall(r'cx="([\d.-]+)" cy="([\d.-]+)"', drawn):
        assert 0 <= float(x) <= 460
        assert 0 <= float(y) <= 260
    assert drawn.count("<circle") == len(values)
