"""The memory budget as table, bar, data and picture."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from plan_factories import K3, make_checkpoint, make_plan

from kimi_serve.launcher.budget.sentences import gib
from kimi_serve.launcher.cli import run
from kimi_serve.launcher.report.budget import SIGNS, Paper, bar, budget_lines
from kimi_serve.launcher.report.budget_picture import save_budget_picture
from kimi_serve.launcher.report.render import log_lines, plan_json, plan_text
from kimi_serve.launcher.supervise.engine import memory_note
from kimi_serve.schemas.budget import BudgetRow, GpuBudget, MemoryBudget
from kimi_serve.schemas.errors import PlanError

PAGE = Path(__file__).parents[2] / "docs" / "memory-budget.md"
H200 = {
    "engine.kind": "sglang",
    "engine.version": "0.5.23",
    "model.trust_remote_code": True,
    "engine.args": ("--tp-size", "8"),
    "gpu.total_mib": 143771,
    "tokenizer.worker_num": 16,
}


def budget_of(given: dict[str, Any], **more: Any) -> MemoryBudget:
    budget = make_plan(given, **more).budget
    assert budget is not None
    return budget


def make_gpu(total: int, fixed: int, each: int, workers: int = 1) -> GpuBudget:
    rows = (
        BudgetRow("static pool", fixed, "", ""),
        BudgetRow("contexts", each * workers, "", "", grows=True),
    )
    return GpuBudget("GPU 0", total, "", rows, workers, each, each, 0)


def test_the_page_shows_the_plan_as_it_is() -> None:
    lines = budget_lines(budget_of(H200), Paper(100))
    example = "\n".join(["memory", *lines])
    assert example in PAGE.read_text(encoding="utf-8"), example


@pytest.mark.parametrize("total", [81559, 143771, 183359])
def test_the_pages_table_is_computed(total: int) -> None:
    gpu = budget_of(H200 | {"gpu.total_mib": total}).gpus[0]
    pool = gpu.row("static pool")
    assert pool is not None
    assert pool.mib is not None
    assert gpu.room_mib is not None
    share = pool.formula.split()[0]
    row = f"| {share} | {gib(total - pool.mib)} | {gib(gpu.room_mib)} | {gpu.largest} |"
    page = PAGE.read_text(encoding="utf-8")
    assert f", {total} MiB {row}" in page


def test_every_term_stands_with_formula_and_source() -> None:
    text = plan_text(make_plan(H200))
    assert "\nmemory\n  GPU 0          143771 MiB  prod.yaml" in text
    assert "- static pool  117321 MiB  0.816 x 143771: 0.816 = (1 - 14848 / 143771)" in text
    assert "(sglang 0.5.23 memory_hook.py)" in text
    assert "- contexts      12800 MiB  16 x 800 (default)" in text
    assert "= left         -14590 MiB" in text
    assert "GPU 0: does not fit, 14.2 GiB too much: at most 7 fit" in text
    assert "image.force_cpu_preprocessing would save 25.6 GiB" in text


def test_what_is_not_counted_is_in_brackets_and_what_is_not_known_says_so() -> None:
    pinned = "\n".join(budget_lines(budget_of(H200 | {"gpu.mem_fraction_static": 0.8})))
    assert "(9216 MiB)" in pinned
    unknown = "\n".join(budget_lines(budget_of(H200, checkpoint=make_checkpoint(K3))))
    assert "unknown  the engine chooses, and its rule for" in unknown
    assert "[" not in unknown
    assert budget_lines(None) == []


@pytest.mark.parametrize("width", [20, 40, 80, 120, 200])
@pytest.mark.parametrize("has_blocks", [True, False])
def test_the_bar_is_as_wide_as_the_paper(width: int, has_blocks: bool) -> None:
    paper = Paper(width, has_blocks)
    for gpu in (*budget_of(H200).gpus, make_gpu(100, 99, 1), make_gpu(10**6, 1, 1)):
        drawn, *legend = bar(gpu, paper)
        assert len(drawn) == max(20, width - 4) + 2
        assert all(len(line) <= max(width, 30) for line in legend)
        assert has_blocks or "".join((drawn, *legend)).isascii()


def test_the_bar_shows_shares_and_the_end_of_memory() -> None:
    drawn, *legend = bar(make_gpu(100, 50, 10, workers=2), Paper(24, has_blocks=False))
    assert drawn == "[##########++++......]"
    assert legend[0].startswith("# engine")
    over, *_ = bar(make_gpu(100, 80, 40, workers=3), Paper(24, has_blocks=False))
    assert over == "[########++|+++++++++]"
    assert "0.1 GiB" in " ".join(bar(make_gpu(100, 80, 40, workers=3), Paper(80)))


def test_json_has_terms_and_what_follows() -> None:
    document = json.loads(json.dumps(plan_json(make_plan(H200))))["budget"]
    gpu = document["gpus"][0]
    assert (document["fits"], document["flag"], document["flag_saves_mib"]) == (
        False,
        "would save",
        26192,
    )
    assert (gpu["largest_worker_num"], gpu["left_mib"], gpu["fits"]) == (7, -14590, False)
    assert {row["name"] for row in gpu["rows"]} >= {"static pool", "contexts", "images"}
    assert all(row["formula"] and row["source"] for row in gpu["rows"])
    assert plan_json(make_plan())["budget"] is None


def test_the_log_and_the_note_on_memory_have_the_arithmetic() -> None:
    plan = make_plan(H200)
    (line,) = [line for _, line in log_lines(plan) if line.startswith("memory: ")]
    assert "16 x 800 MiB = 12.5 GiB of contexts and 16 x 837 MiB" in line
    assert "at most 7 fit" in memory_note(plan.findings, plan.budget)
    roomy = make_plan(H200 | {"tokenizer.worker_num": 2})
    note = memory_note(roomy.findings, roomy.budget)
    assert "fits, 8.1 GiB left: at most 7 fit" in note
    assert memory_note((), None) == ""


# The picture


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"gpu.mem_fraction_static": 0.3},
        {"image.force_cpu_preprocessing": True},
        {"tokenizer.worker_num": 300},
    ],
)
def test_the_picture_has_both_lines_and_the_limit(changes: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "budget.png"
    save_budget_picture(budget_of(H200 | changes), path)
    with Image.open(path) as picture:
        assert (picture.format, picture.size) == ("PNG", (1800, 1120))
        colours = picture.convert("RGB").getcolors(1 << 24) or []
    seen = {colour for number, colour in colours if number > 200}
    assert {(0xC0, 0x56, 0x21), (0x2B, 0x6C, 0xB0), (0xC5, 0x30, 0x30)} <= seen


def test_nothing_known_nothing_drawn(tmp_path: Path) -> None:
    unknown = budget_of(H200, checkpoint=make_checkpoint(K3))
    with pytest.raises(PlanError, match="nothing to draw"):
        save_budget_picture(unknown, tmp_path / "x.png")
    with pytest.raises(PlanError, match=r"x\.png"):
        save_budget_picture(budget_of(H200), tmp_path / "gone" / "x.png")


# The command

PLAN = ["plan", "--gpu-total-mib", "143771", "--engine", "sglang", "--tokenizer-worker-num", "16"]


def test_plan_draws_where_it_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    run([*PLAN, "--picture", str(tmp_path / "b.png")])
    assert (tmp_path / "b.png").read_bytes().startswith(b"\x89PNG")
    (drawn,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  [")]
    assert len(drawn) == 60


@pytest.mark.parametrize(("encoding", "has_blocks"), [("utf-8", True), ("latin-1", False)])
def test_the_bar_uses_what_the_terminal_can_show(
    encoding: str, has_blocks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding))
    run(PLAN)
    sys.stdout.flush()
    shown = written.getvalue().decode(encoding)
    assert any(sign in shown for sign in SIGNS if not sign.isascii() and sign != "·") == has_blocks


def test_what_cannot_be_drawn_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = str(tmp_path / "b.png")
    assert run(["plan", "--gpu-ids", "", "--picture", target]) in (2, 3)
    assert run(["plan", "--force-cpu-image-preprocessing", "--picture", target]) == 3
    assert "no memory budget to draw" in capsys.readouterr().err
    assert run([*PLAN, "--compare", "sglang,vllm", "--picture", target]) == 2
    assert not Path(target).exists()


@pytest.mark.parametrize("name", ["b.svg", "b", "b.jpg", "png"])
def test_a_picture_is_not_written_under_another_kinds_name(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*PLAN, "--picture", str(tmp_path / name)]) == 2
    assert "the picture is a PNG" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
