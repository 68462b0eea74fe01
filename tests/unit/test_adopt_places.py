"""Commands in other places: units, sessions, containers with GPUs, branches of a script."""

from __future__ import annotations

import pytest
from adopted import adopt_text, adopt_words, load, plan_of

from kimi_serve.launcher.adopt.adoption import Adoption


def noted(adoption: Adoption, *words: str) -> bool:
    return any(all(word in note for word in words) for note in adoption.notes)


UNIT = r"""
[Unit]
Description=Kimi
After=network-online.target

[Service]
User=kimi
Environment="TP=8" 'NCCL_DEBUG=INFO'
Environment=SGLANG_FORCE_CPU_IMAGE_PREPROCESSING=1
Environment=HF_TOKEN=hf_abcdefgh12345678
ExecStartPre=/bin/sleep 1
# the engine
ExecStart=-/opt/sglang/bin/python -m sglang.launch_server \
    --model-path /models/k25 \
    # not this one
    --served-model-name "kimi %% k2" --tp-size ${TP} --port $PORT
Restart=always
"""


def test_a_systemd_unit_is_read() -> None:
    adoption = adopt_text(UNIT)
    settings = load(adoption, {"PORT": "30000"}).settings
    assert settings.engine.kind == "sglang"
    assert settings.engine.python == "/opt/sglang/bin/python"
    assert settings.model.path == "/models/k25"
    assert settings.model.served_name == "kimi % k2"
    assert settings.image.force_cpu_preprocessing
    assert settings.engine.args == ("--tp-size", "8", "--port", "30000")
    assert settings.engine.env["NCCL_DEBUG"] == "INFO"
    assert "hf_abcdefgh" not in adoption.text
    assert noted(adoption, "User=kimi", "about the unit")
    assert noted(adoption, "/bin/sleep 1", "another command")


def test_a_shell_in_a_unit_is_read() -> None:
    text = "[Service]\nEnvironment=M=/m\nExecStart=/bin/bash -c 'exec vllm serve ${M} --port 1'\n"
    assert load(adopt_text(text)).settings.model.path == "/m"


@pytest.mark.parametrize(
    "words",
    [
        ("tmux", "new-session", "-d", "-s", "k", "cd /x && A=1 sglang serve /m --tp-size 8"),
        ("ssh", "-t", "host", "source venv/bin/activate; A=1 sglang serve /m --tp-size 8"),
        ("env", "-S", "A=1 sglang serve /m --tp-size 8"),
        ("env", "-SA=1 sglang serve /m --tp-size 8"),
        ("env", "--split-string=A=1 sglang serve /m --tp-size 8"),
        ("su", "-", "kimi", "-c", "A=1 sglang serve /m --tp-size 8"),
        ("screen", "-dmS", "k", "bash", "-c", "A=1 sglang serve /m --tp-size 8"),
    ],
)
def test_a_text_that_another_command_hands_on_is_read(words: tuple[str, ...]) -> None:
    adoption = adopt_words(*words)
    settings = load(adoption).settings
    assert (settings.engine.kind, settings.model.path) == ("sglang", "/m")
    assert settings.engine.args == ("--tp-size", "8")
    assert settings.engine.env == {"A": "1"}


def test_a_session_in_a_script_is_read() -> None:
    text = 'TP=8\ntmux new-session -d "vllm serve /m --max-num-seqs $TP"\n'
    assert load(adopt_text(text)).settings.engine.args == ("--max-num-seqs", "8")


@pytest.mark.parametrize(
    ("words", "ids"),
    [
        (("--gpus", '"device=2,3"'), ("0", "1")),
        (("--gpus", "device=GPU-aa,GPU-bb"), ("GPU-aa", "GPU-bb")),
        (("-e", "NVIDIA_VISIBLE_DEVICES=4,5,6"), ("0", "1", "2")),
        (("--device", "nvidia.com/gpu=1", "--device=nvidia.com/gpu=3"), ("0", "1")),
        (("--gpus", "all"), None),
        (("-e", "NVIDIA_VISIBLE_DEVICES=all"), None),
    ],
)
def test_a_container_counts_its_gpus_from_zero(
    words: tuple[str, ...], ids: tuple[str, ...] | None
) -> None:
    adoption = adopt_words("docker", "run", *words, "img", "vllm", "serve", "/m")
    assert load(adoption).settings.gpu.ids == ids


@pytest.mark.parametrize(
    "lines",
    [
        "deploy: {resources: {reservations: {devices: [{device_ids: ['2', '3'], driver: n}]}}}",
        "gpus: [{device_ids: ['2', '3']}]",
    ],
)
def test_the_gpus_of_a_compose_service_are_read(lines: str) -> None:
    text = f"services:\n  k:\n    image: vllm/vllm-openai:v0.33.0\n    command: [/m]\n    {lines}\n"
    adoption = adopt_text(text)
    assert load(adoption).settings.gpu.ids == ("0", "1")
    assert "GPU 2, 3 of the host" in adoption.text


SCRIPT = """\
ARGS=(--tp-size 8)
if [ -n "$LONG" ]; then
  ARGS+=(--context-length 1000)
  export NCCL_DEBUG=INFO
else
  ARGS+=(--context-length 2000)
  export NCCL_DEBUG=WARN
fi
[ "$FAST" = 1 ] && ARGS+=(--disable-cuda-graph)
python -m sglang.launch_server --model-path /m "${ARGS[@]}"
"""


def test_a_condition_is_taken_as_true_and_said() -> None:
    adoption = adopt_text(SCRIPT)
    settings = load(adoption).settings
    assert settings.engine.args == (
        *("--tp-size", "8", "--context-length", "1000", "--disable-cuda-graph"),
    )
    assert settings.engine.env == {"NCCL_DEBUG": "INFO"}
    assert noted(adoption, "line 3", "ARGS", "`if` (line 2)", "taken as if it held")
    assert noted(adoption, "line 6", "ARGS", "other branch", "taken as true")
    assert noted(adoption, "line 9", "ARGS", "`[` (line 9)")


def test_an_engine_in_a_branch_is_found_and_said() -> None:
    adoption = adopt_text("if true; then\n  vllm serve /m\nfi\n")
    assert load(adoption).settings.model.path == "/m"
    assert noted(adoption, "the engine starts in `if` (line 1)")


def test_the_time_to_finish_is_the_commands() -> None:
    cut = adopt_words("vllm", "serve", "/m")
    assert load(cut).settings.server.drain_timeout_s == 0
    assert "no --shutdown-timeout was given" in cut.text
    launch = plan_of(cut).launch
    assert launch is not None
    assert not launch.stopping.drains
    said = adopt_words("vllm", "serve", "/m", "--shutdown-timeout", "0")
    assert load(said).settings.server.drain_timeout_s == 0
    assert load(said).settings.engine.args == ()
    kept = adopt_words("vllm", "serve", "/m", "--shutdown-timeout", "12")
    assert load(kept).settings.server.drain_timeout_s == 12
