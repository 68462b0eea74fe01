"""Commands in other places: units, sessions, containers with GPUs, branches of a script."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest
from adopted import adopt_text, adopt_words, load, plan_of

from kimi_serve.launcher.adopt.adoption import Adoption
from kimi_serve.launcher.adopt.entry_point import find_shell
from kimi_serve.launcher.adopt.find import find_in_words
from kimi_serve.launcher.adopt.words import Told
from kimi_serve.schemas.errors import ConfigError


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


@pytest.mark.parametrize(
    "options",
    [
        ("-c",),
        ("-lc",),
        ("-euo", "pipefail", "-c"),
        ("-l", "-c"),
        ("-e", "-o", "pipefail", "-lc"),
        ("-c", "-e"),
        ("-ceuo", "pipefail"),
        ("-O", "extglob", "+O", "dotglob", "-c"),
        ("+o", "posix", "-c"),
        ("--norc", "--rcfile", "/dev/null", "-c"),
        ("-c", "--"),
        ("-e",),
        ("-o", "-c"),
        ("--", "-c"),
        ("/nowhere/script", "-c"),
        ("-c", "true"),
    ],
)
def test_the_text_of_a_shell_is_found_where_bash_finds_it(options: tuple[str, ...]) -> None:
    words = ["bash", *options, "echo ran"]
    ran = subprocess.run(words, capture_output=True, text=True, check=False, timeout=20)
    assert (find_shell(words) == (0, len(words) - 1)) == (ran.stdout == "ran\n")


@pytest.mark.parametrize(
    "front",
    [
        "bash -euo pipefail -c",
        "/bin/bash -l -c",
        "docker run --rm img bash -eu -o pipefail -c",
        "docker run --entrypoint bash img -euo pipefail -c",
        "nohup env A=1 sh -e -c",
    ],
)
def test_a_shell_with_options_is_read(front: str) -> None:
    words = (*front.split(), "cd /x; exec vllm serve /m --seed 1")
    for adoption in (adopt_words(*words), adopt_text(shlex.join(words))):
        settings = load(adoption).settings
        assert (settings.model.path, settings.engine.args) == ("/m", ("--seed", "1"))


@pytest.mark.parametrize(
    "text",
    [
        "docker run vllm/vllm-openai:v0.33.0 /m --seed 1",
        "docker run --gpus all vllm/vllm-openai@sha256:abc --seed 1 /m",
        "docker run vllm/vllm-openai vllm serve /m --seed 1",
        "docker run vllm/vllm-openai bash -c 'vllm serve /m --seed 1'",
        "docker run --entrypoint '' vllm/vllm-openai vllm serve /m --seed 1",
        "docker run --entrypoint vllm vllm/vllm-openai serve /m --seed 1",
        "docker run vllm/vllm-openai python3 -m vllm.entrypoints.cli.main serve /m --seed 1",
        "image: vllm/vllm-openai\ncommand: /m --seed 1\n",
        "image: vllm/vllm-openai\nargs: [/m, --seed, '1']\n",
        "image: vllm/vllm-openai\nentrypoint: []\ncommand: vllm serve /m --seed 1\n",
        "image: vllm/vllm-openai\nentrypoint:\ncommand: [/m, --seed, '1']\n",
        "image: vllm/vllm-openai\ncommand: []\nargs: [/m, --seed, '1']\n",
    ],
)
def test_an_image_that_starts_the_engine_gives_it_all_words(text: str) -> None:
    settings = load(adopt_text(text)).settings
    assert (settings.engine.kind, settings.model.path) == ("vllm", "/m")
    assert settings.engine.args == ("--seed", "1")


@pytest.mark.parametrize(
    "text",
    [
        "docker exec vllm-openai nvidia-smi",
        "docker exec -it vllm-openai /m --seed 1",
        "docker run -it vllm/vllm-openai bash",
        "docker run vllm/vllm-openai bash -c 'pip list'",
        "docker run vllm/vllm-openai /bin/sh /start.sh --seed 1",
        "docker run vllm/vllm-openai env A=1 bash -c 'pip list'",
        "docker run --entrypoint '' vllm/vllm-openai nvidia-smi -L",
        "docker run --entrypoint nvidia-smi vllm/vllm-openai -L",
        "image: vllm/vllm-openai\nentrypoint: ''\ncommand: nvidia-smi\n",
    ],
)
def test_what_runs_in_place_of_the_engine_is_none(text: str) -> None:
    with pytest.raises(ConfigError, match="no engine command"):
        adopt_text(text)
    if text.startswith("docker"):
        with pytest.raises(ConfigError, match="no engine command"):
            find_in_words(shlex.split(text), Told())


def service(env_file: str) -> str:
    return f"services:\n  a:\n    command: vllm serve /m\n    env_file: {env_file}\n"


def test_the_long_form_of_an_env_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "a.env"
    file.write_text("NCCL_DEBUG=INFO\n", encoding="utf-8")
    for text in (f"[{{path: {file}, required: true}}]", f"[{{path: {file}}}]", f"[{file}]"):
        adoption = adopt_text(service(text))
        assert load(adoption).settings.engine.env == {"NCCL_DEBUG": "INFO"}


@pytest.mark.parametrize(
    ("entry", "is_optional"),
    [
        ("[{path: /no.env, required: false}]", True),
        ("[{path: /no.env, required: true}]", False),
        ("[{path: /no.env}]", False),
        ("/no.env", False),
    ],
)
def test_a_file_that_is_not_here_may_have_to_be_there(entry: str, is_optional: bool) -> None:
    adoption = adopt_text(service(entry))
    assert noted(adoption, "/no.env cannot be read here")
    assert noted(adoption, "need not be there") == is_optional


def test_a_unit_says_which_file_may_be_missing() -> None:
    unit = "[Service]\nEnvironmentFile={}/no.env\nExecStart=vllm serve /m\n"
    assert noted(adopt_text(unit.format("-")), "need not be there")
    assert not noted(adopt_text(unit.format("")), "need not be there")


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("env_file: [{format: raw}]", "line 2: a file of env_file is a text, or a mapping with"),
        ("env_file: [[a]]", "line 2: a file of env_file is a text, or a mapping with"),
        ("ports: [{published: 1}]", "line 2: a port is a text, or a mapping with"),
        ("environment: {A: [1]}", "line 2: the value of a variable is a text"),
        ("environment: [[A=1]]", "line 2: a variable is NAME=value"),
        ("image: [a]", "line 2: an image is a text"),
        ("entrypoint: [[a]]", "line 2: a word of a command is a text"),
    ],
)
def test_what_is_no_text_is_called_what_it_is(lines: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        adopt_text(f"command: vllm serve /m\n{lines}\n")
    assert caught.value.message.startswith(said)
    assert caught.value.message.endswith("and this is a list or a mapping")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("docker run vllm/vllm-openai /m", "image vllm/vllm-openai: the profile is"),
        ("docker exec -it kimi vllm serve /m", "container kimi: the profile is"),
    ],
)
def test_where_the_command_runs_is_named(text: str, words: str) -> None:
    assert any(words in note for note in adopt_text(text).notes)


def test_the_version_of_another_engine_s_image_says_nothing() -> None:
    text = "docker run vllm/vllm-openai:v0.33.0 python3 -m sglang.launch_server --model-path /m"
    settings = load(adopt_text(text)).settings
    assert (settings.engine.kind, settings.engine.version) == ("sglang", None)


@pytest.mark.parametrize(
    "text",
    [
        "docker run vllm/vllm-openai:v0.33.0 --model /m --chat-template template.jinja",
        "docker run img vllm serve /m --chat-template ./template.jinja",
        "image: vllm/vllm-openai\ncommand: [/m, --chat-template, template.jinja]\n",
    ],
)
def test_a_relative_path_in_a_container_is_a_folder_of_the_image(text: str) -> None:
    (finding,) = [each for each in adopt_text(text).findings if each.rule == "KS403"]
    assert "--chat-template" in finding.message
    assert finding.severity == "warning"


@pytest.mark.parametrize(
    "text",
    [
        "vllm serve /m --chat-template template.jinja",
        "docker run img vllm serve /m --chat-template /t/template.jinja",
        "docker run img vllm serve /m --chat-template '{{ messages }}'",
        "docker run img vllm serve /m --root-path vllm-server --served-model-name a/b",
    ],
)
def test_what_is_no_relative_path_of_a_container(text: str) -> None:
    assert not [each for each in adopt_text(text).findings if each.rule == "KS403"]
