"""`kimi-serve verify` as a program: what it measures, writes, refuses, and its exit code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from image_samples import encoded, picture
from integration_server import wait_until
from PIL import Image

from kimi_serve.launcher.cli import run
from kimi_serve.launcher.verify import run as run_module
from kimi_serve.launcher.verify.reference import ReferenceImage, reference
from kimi_serve.schemas.worker import ResizeConfig


@pytest.fixture
def images(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    folder.mkdir()
    (folder / "plain.png").write_bytes(encoded(picture(), "PNG"))
    (folder / "photo.jpg").write_bytes(encoded(picture().resize((90, 70)), "JPEG"))
    deep = Image.new("RGBA", (33, 21), (200, 10, 10, 90))
    (folder / "glass.webp").write_bytes(encoded(deep, "WEBP", lossless=True))
    return folder


def clean_env() -> dict[str, str]:
    return {name: text for name, text in os.environ.items() if not name.startswith("KIMI_SERVE_")}


def test_it_measures_and_writes_three_reports(images: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ran = subprocess.run(
        [sys.executable, "-P", "-m", "kimi_serve.launcher", "verify", "--images", str(images),
         "--workers", "2", "--seconds", "0.2", "--out", str(out)],
        capture_output=True, text=True, timeout=110, env=clean_env(), check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "all that was measured holds" in ran.stdout
    assert {path.name for path in out.iterdir()} == {"report.txt", "report.json", "report.html"}
    assert (out / "report.txt").read_text() == ran.stdout
    found = json.loads((out / "report.json").read_text())
    assert found["holds"] is True
    first = found["comparisons"][0]
    assert [image["name"] for image in first["images"]] == ["glass.webp", "photo.jpg", "plain.png"]
    assert all(image["share"] == 0 and image["holds"] for image in first["images"])
    (point,) = found["loads"]
    assert (point["configuration"], point["workers"]) == ("forced CPU", 2)
    assert point["images"] >= 3
    assert point["p50_ms"] <= point["p95_ms"]
    assert point["cores"] > 0
    assert all(promise["holds"] for promise in found["promises"])
    # Whatever this host lacks is said with a reason.
    assert all(missed["why"] for missed in found["not_measured"])


def test_a_difference_of_one_bit_is_exit_code_1(
    images: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def off_by_a_bit(data: bytes, config: ResizeConfig) -> ReferenceImage:
        made = reference(data, config)
        made.values.flat[5] += 1e-7
        return made

    def left_out(_: object) -> str:
        return "left out here"

    for name in [name for name in os.environ if name.startswith("KIMI_SERVE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(run_module, "reference", off_by_a_bit)
    monkeypatch.setattr(run_module, "missing", left_out)
    monkeypatch.setattr(run_module.SecondOpinion, "missing", property(left_out))
    code = run(["verify", "--images", str(images), "--workers", "1", "--seconds", "0.1"])
    assert code == 1
    printed = capsys.readouterr().out
    assert "BROKEN: see above" in printed
    assert "not measured  transformers: left out here" in printed


def without_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def left_out(_: object) -> str:
        return "left out here"

    for name in [name for name in os.environ if name.startswith("KIMI_SERVE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(run_module, "missing", left_out)
    monkeypatch.setattr(run_module.SecondOpinion, "missing", property(left_out))


def test_a_damaged_image_costs_itself_only(
    images: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without_others(monkeypatch)
    whole = (images / "plain.png").read_bytes()
    (images / "damaged.png").write_bytes(whole[: len(whole) // 2])
    (images / "notes.txt").write_text("no image")
    assert run(["verify", "--images", str(images), "--workers", "1", "--seconds", "0.1"]) == 0
    printed = capsys.readouterr().out
    assert "  1 forced CPU" in printed
    assert "not measured  damaged.png beside" in printed
    assert "not measured  notes.txt: no image in one of image.formats" in printed
    assert "1 workers" not in printed


def test_a_format_that_is_not_a_default_is_verified(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without_others(monkeypatch)
    words = ["--image-formats", "bmp", "--workers", "1", "--seconds", "0.1"]
    assert run(["verify", *words]) == 0
    assert "bmp_RGB_400x300.bmp" in capsys.readouterr().out


def test_images_that_are_all_damaged_are_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without_others(monkeypatch)
    whole = encoded(picture(), "PNG")
    (tmp_path / "damaged.png").write_bytes(whole[: len(whole) // 2])
    assert run(["verify", "--images", str(tmp_path), "--workers", "1", "--seconds", "0.1"]) == 1
    assert "BROKEN  there are images to measure" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--workers", "1,x"], "--workers '1,x': whole numbers from 1 to 256"),
        (["--workers", "0"], "--workers '0'"),
        (["--images", "/nowhere"], "--images /nowhere"),
        (["--out", "/proc/nowhere"], "--out /proc/nowhere"),
        (["--media-max-bytes", "10"], "no generated image is one that the settings accept"),
    ],
)
def test_what_is_wrong_is_said_before_anything_runs(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["verify", *words]) == 2
    assert said in capsys.readouterr().err


HANGING_TORCH = """
import os, pathlib, time
pathlib.Path(os.environ["CHILD"]).write_text(str(os.getpid()))
time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGKILL])
def test_a_stop_leaves_no_child_and_no_images(
    images: Path, tmp_path: Path, number: signal.Signals
) -> None:
    (tmp_path / "torch.py").write_text(HANGING_TORCH)
    (tmp_path / "transformers.py").touch()
    (tmp_path / "temporary").mkdir()
    said = tmp_path / "child"
    env = clean_env() | {
        "PYTHONPATH": str(tmp_path), "CHILD": str(said), "TMPDIR": str(tmp_path / "temporary"),
    }  # fmt: skip
    # Under nohup this process ignores it, and its children would.
    earlier = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        verifying = subprocess.Popen(
            [sys.executable, "-P", "-m", "kimi_serve.launcher", "verify", "--images", str(images)],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env,
        )  # fmt: skip
    finally:
        signal.signal(signal.SIGHUP, earlier)
    with verifying:
        wait_until(lambda: said.exists() and bool(said.read_text()))
        verifying.send_signal(number)
        verifying.wait(30)
    assert verifying.returncode != 0
    child = Path(f"/proc/{said.read_text()}/stat")
    wait_until(lambda: not child.exists() or child.read_text().rpartition(")")[2].split()[0] == "Z")
    if number != signal.SIGKILL:
        assert list((tmp_path / "temporary").iterdir()) == []
