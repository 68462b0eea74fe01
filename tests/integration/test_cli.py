"""The commands as a user meets them: exit codes, messages, files."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from integration_server import DATA, without_settings
from PIL import Image

from kimi_serve.preprocess.checkpoint_files.locate import BUNDLED

K3: dict[str, object] = {
    "architectures": ["KimiK3ForConditionalGeneration"],
    "model_type": "kimi_k3",
}
TEXT_ONLY: dict[str, object] = {"architectures": ["DeepseekV3ForCausalLM"], "model_type": "kimi_k2"}


def run(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "kimi_serve.launcher", *arguments],
        env=without_settings() | (env or {}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def checkpoint(folder: Path, config: Mapping[str, object]) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return str(folder)


def test_plan_as_json_has_devices_origins_and_specs() -> None:
    result = run(
        "plan", "--json", "--force-cpu-image-preprocessing",
        env={"KIMI_SERVE_TOKENIZER__WORKER_NUM": "3"},
    )  # fmt: skip
    plan = json.loads(result.stdout)
    assert plan["decisions"]["decode_device"]["value"] == "cpu"
    assert plan["decisions"]["decode_device"]["source"] == "--force-cpu-image-preprocessing"
    assert len(plan["workers"]) == 3
    (value,) = (item for item in plan["settings"] if item["path"] == "tokenizer.worker_num")
    assert value["value"] == 3
    assert value["origin"]["text"] == "env KIMI_SERVE_TOKENIZER__WORKER_NUM"


def test_ks201_for_a_model_that_ignores_the_flag(tmp_path: Path) -> None:
    model = checkpoint(tmp_path / "k3", {**K3, "vision_config": {"patch_size": 14}})
    profile = tmp_path / "p.yaml"
    profile.write_text(
        "model: {path: ./k3}\n"
        "engine: {kind: sglang, version: 0.5.23}\n"
        "gpu: {total_mib: 81920}\n"
        "image: {force_cpu_preprocessing: true}\n",
        encoding="utf-8",
    )
    result = run("plan", str(profile))
    assert result.returncode == 0, result.stderr
    assert f"{profile}:4:34: warning KS201" in result.stdout
    assert "decode_device      cuda" in result.stdout
    assert model in result.stdout


def test_an_engine_that_is_not_installed_is_planned_and_not_started() -> None:
    words = ("--engine", "sglang", "--engine-python", "no-such-python", "--trust-remote-code")
    words = (*words, "--model-path", str(BUNDLED))
    result = run(*words)
    assert result.returncode == 3
    assert "sglang cannot be started: no-such-python is not in PATH" in result.stderr
    planned = run("plan", *words)
    assert planned.returncode == 3
    assert "-m sglang.launch_server" in planned.stdout


def test_a_launch_with_errors_is_refused_unless_one_insists(tmp_path: Path) -> None:
    profile = tmp_path / "p.yaml"
    profile.write_text("engine: {kind: none}\nmedia: {allowed_domains: ['https://a.b/c']}\n")
    result = run("--profile", str(profile))
    assert result.returncode == 2
    assert "nothing was started" in result.stderr
    assert "KS502" in result.stderr
    assert "--start-anyway" in result.stderr
    assert run("plan", str(profile)).returncode == 2


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({**K3, "vision_config": {"patch_size": 14}}, "KimiK3ForConditionalGeneration"),
        (TEXT_ONLY, "text-only"),
    ],
)
def test_what_the_built_in_workers_do_not_serve(
    tmp_path: Path, config: dict[str, object], words: str
) -> None:
    result = run("plan", "--model-path", checkpoint(tmp_path / "m", config))
    assert result.returncode == 3
    assert words in result.stderr
    assert "Traceback" not in result.stderr


def test_a_checkpoint_that_transformers_saved_again_is_served(tmp_path: Path) -> None:
    model = shutil.copytree(BUNDLED, tmp_path / "m")
    for file in model.glob("*processor*config.json"):
        file.unlink()
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    del config["media_placeholder_token_id"]
    config |= {
        "architectures": ["Kimi_K25ForConditionalGeneration"],
        "image_token_id": 163605,
    }
    checkpoint(model, config)
    native = {
        "max_patches": 16384, "size": {"max_height": 512, "max_width": 512}, "patch_size": 14,
        "merge_size": 2, "image_mean": [0.5] * 3, "image_std": [0.5] * 3,
    }  # fmt: skip
    text = json.dumps({"image_processor": native})
    (model / "processor_config.json").write_text(text, encoding="utf-8")
    image = DATA / "golden" / "odd_27x29.png"
    result = run("preprocess", str(image), "--model-path", str(model))
    assert result.returncode == 0, result.stderr
    assert "27x29 -> 27x29, 2x4 patches, 2 tokens" in result.stdout


def test_models_that_are_not_there(tmp_path: Path) -> None:
    missing = run("plan", "--model-path", str(tmp_path / "nope"))
    offline = run(
        "plan", "--model-path", "org/never-cached",
        env={"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)},
    )  # fmt: skip
    assert (missing.returncode, offline.returncode) == (2, 3)
    assert "nope" in missing.stderr
    assert "HF_HUB_OFFLINE" in offline.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--tokenizer-worker-nums", "4"], "--tokenizer-worker-num"),
        (["\u2013-tokenizer-worker-num", "4"], "U+2013"),
        (["--set", "image.max_pixel=1"], "image.max_pixels"),
        (["plan", "--port", "70000"], "65535"),
        (["explain", "server.prot"], "server.port"),
        (["nonsense"], "nonsense"),
        (["--profile", "/nope.yaml"], "/nope.yaml"),
    ],
)
def test_wrong_text_is_exit_2_with_a_remedy(arguments: list[str], words: str) -> None:
    result = run(*arguments)
    assert result.returncode == 2, result.stderr
    assert words in result.stderr
    assert "Traceback" not in result.stderr


def test_flags_before_and_after_the_command_count() -> None:
    result = run("--port", "1", "plan", "--changed", "--host", "::1")
    assert "server.port  1" in result.stdout
    assert "--host" in result.stdout


def test_help_lists_every_setting_by_section() -> None:
    result = run("--help")
    assert "--tokenizer-worker-num" in result.stdout
    assert "--no-force-cpu-image-preprocessing" in result.stdout
    assert "Tokenizer:" in result.stdout


def test_preprocess_writes_tensors_and_a_picture(tmp_path: Path) -> None:
    out, picture = tmp_path / "x.safetensors", tmp_path / "x.png"
    image = DATA / "golden" / "odd_27x29.png"
    result = run("preprocess", str(image), "--out", str(out), "--picture", str(picture))
    assert result.returncode == 0, result.stderr
    assert "27x29 -> 27x29, 2x4 patches, 2 tokens" in result.stdout
    with Image.open(picture) as drawn:
        assert drawn.size == (28, 56)
    header_bytes = int.from_bytes(out.read_bytes()[:8], "little")
    header = json.loads(out.read_bytes()[8 : 8 + header_bytes])
    assert header["pixel_values"]["shape"] == [8, 3, 14, 14]


def test_preprocess_names_the_file_at_fault(tmp_path: Path) -> None:
    good, bad = DATA / "images" / "13x13.png", DATA / "images" / "truncated.png"
    result = run("preprocess", str(good), str(bad))
    assert result.returncode == 2
    assert "13x13.png: png 13x13" in result.stdout
    assert "truncated.png" in result.stderr
    assert run("preprocess", str(tmp_path / "nope.png")).returncode == 2


def test_preprocess_needs_the_built_in_workers() -> None:
    result = run("preprocess", str(DATA / "images" / "13x13.png"), "--engine", "sglang")
    assert result.returncode == 3, result.stderr
    assert "sglang (--engine) preprocesses images itself" in result.stderr
    assert "--engine none" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_closed_pipe_is_no_traceback() -> None:
    command = f"{sys.executable} -P -m kimi_serve.launcher plan --json | head -c 1"
    result = subprocess.run(
        ["bash", "-c", command], env=without_settings(), capture_output=True, text=True, check=False
    )
    assert "Traceback" not in result.stderr
