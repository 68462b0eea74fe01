"""What becomes of the words, variables and containers of a command."""

from __future__ import annotations

from pathlib import Path

import pytest
from adopted import adopt_text, adopt_words, assert_same, load, plan_of

from kimi_serve.launcher.adopt.adoption import Adoption, adopt
from kimi_serve.launcher.adopt.container import container_port, gpu_ids
from kimi_serve.launcher.adopt.environment import read_env_files
from kimi_serve.launcher.adopt.find import find_in_text, find_in_words
from kimi_serve.launcher.adopt.words import EnvFile, Told, Word
from kimi_serve.launcher.lint.run import lint_profile
from kimi_serve.launcher.sources.yaml_text import scalar
from kimi_serve.schemas.errors import ConfigError

SGLANG = ("python", "-m", "sglang.launch_server", "--model-path", "/m")


def rules(adoption: Adoption) -> list[str]:
    return [f"{each.rule} {each.severity}" for each in adoption.findings]


def noted(adoption: Adoption, *words: str) -> bool:
    """Tell whether one note has all of these words."""
    return any(all(word in note for word in words) for note in adoption.notes)


@pytest.mark.parametrize(
    ("words", "engine"),
    [
        (("sglang", "serve", "/m"), "sglang"),
        (("sglang", "serve", "--model", "/m"), "sglang"),
        (("vllm", "serve", "/m"), "vllm"),
        (("vllm", "serve", "--model", "/m"), "vllm"),
        (("python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "/m"), "vllm"),
        (("python", "-m", "vllm.entrypoints.cli.main", "serve", "/m"), "vllm"),
        (("nohup", "numactl", "-N", "0", *SGLANG), "sglang"),
        (("torchrun", "--nproc-per-node", "8", *SGLANG[1:]), "sglang"),
        (("sudo", "-E", "A=1", "/usr/bin/python3.11", "-u", *SGLANG[1:]), "sglang"),
        (("bash", "-lc", "cd /x && exec vllm serve /m"), "vllm"),
        (("docker", "run", "-it", "--rm", "img", *SGLANG), "sglang"),
        (("docker", "run", "vllm/vllm-openai:v0.33.0", "--model", "/m"), "vllm"),
        (("podman", "run", "--entrypoint", "vllm", "img", "serve", "/m"), "vllm"),
        (("docker", "exec", "-e", "A=1", "box", "sh", "-c", "vllm serve /m"), "vllm"),
    ],
)
def test_the_engine_is_found_behind_what_stands_in_front(
    words: tuple[str, ...], engine: str
) -> None:
    settings = load(adopt_words(*words)).settings
    assert (settings.engine.kind, settings.model.path) == (engine, "/m")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("ls", "-l"), "no engine command"),
        (("python", "\u2013m", "sglang.launch_server"), "U+2013"),
        (("python", "-m", "sglang.launch_server\u00a0"), "U+00A0"),
    ],
)
def test_without_an_engine_there_is_an_error(words: tuple[str, ...], said: str) -> None:
    with pytest.raises(ConfigError, match=said.replace("+", r"\+")) as caught:
        find_in_words(words, Told())
    assert "vllm serve" in (caught.value.hint or "")


def test_a_quote_without_an_end_is_said_with_its_line() -> None:
    with pytest.raises(ConfigError, match="line 2"):
        find_in_text("vllm serve /m \\\n --host 'x", Told())


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1", True), ("YES", True), ("0", False), ("n", False)],
)
def test_the_switch_is_read_as_the_engine_reads_it(text: str, expected: bool) -> None:
    adoption = adopt_words(f"SGLANG_FORCE_CPU_IMAGE_PREPROCESSING={text}", *SGLANG)
    settings = load(adoption).settings
    assert settings.image.force_cpu_preprocessing is expected
    assert "force_cpu_preprocessing" in adoption.text
    assert settings.engine.env == {}


@pytest.mark.parametrize("text", ["on", "", "1 ", "cpu"])
def test_a_switch_that_is_no_boolean_there_stays_off_and_is_said(text: str) -> None:
    adoption = adopt_words(f"SGLANG_FORCE_CPU_IMAGE_PREPROCESSING={text}", *SGLANG)
    assert load(adoption).settings.image.force_cpu_preprocessing is False
    assert rules(adoption) == ["KS107 error"]


def test_the_old_name_of_the_switch_wins() -> None:
    prefix = ("SGL_FORCE_CPU_IMAGE_PREPROCESSING=0", "SGLANG_FORCE_CPU_IMAGE_PREPROCESSING=1")
    assert not load(adopt_words(*prefix, *SGLANG)).settings.image.force_cpu_preprocessing


def test_another_engine_keeps_the_switch_as_a_variable() -> None:
    adoption = adopt_words("SGLANG_FORCE_CPU_IMAGE_PREPROCESSING=1", "vllm", "serve", "/m")
    assert load(adoption).settings.engine.env == {"SGLANG_FORCE_CPU_IMAGE_PREPROCESSING": "1"}


@pytest.mark.parametrize(
    ("key", "name"), [("sk-secret-1234", "KIMI_API_KEY"), ("$MY", "MY"), ("${MY_KEY}", "MY_KEY")]
)
def test_a_key_becomes_the_name_of_a_variable(key: str, name: str) -> None:
    adoption = adopt_text(f"{' '.join(SGLANG)} --api-key {key}")
    assert f"api_key: {{env: {name}}}" in adoption.text
    assert ("KS505 warning" in rules(adoption)) == (not key.startswith("$"))


def test_an_interpreter_by_path_is_kept_and_one_by_name_is_not() -> None:
    by_path = load(adopt_words("/opt/v/bin/python", *SGLANG[1:])).settings.engine
    assert by_path.python == "/opt/v/bin/python"
    assert load(adopt_words(*SGLANG)).settings.engine.python is None


def test_two_nodes_of_vllm_become_settings() -> None:
    argv = ["vllm", "serve", "/m", "-n", "2", "-r", "1", "--master-addr", "h", "--headless"]
    adoption = adopt_words(*argv)
    nodes = load(adoption).settings.engine.nodes
    assert (nodes.count, nodes.rank, nodes.address) == (2, 1, "h:29501")
    assert_same(argv, plan_of(adoption))


def test_two_nodes_of_sglang_become_settings() -> None:
    argv = [*SGLANG, "--nnodes", "2", "--node-rank=1", "--dist-init-addr", "h:5000", "--tp", "16"]
    adoption = adopt_words(*argv)
    nodes = load(adoption).settings.engine.nodes
    assert (nodes.count, nodes.rank, nodes.address) == (2, 1, "h:5000")
    assert_same(argv, plan_of(adoption))


def test_the_address_of_one_machine_stays_an_argument() -> None:
    argv = [*SGLANG, "--dist-init-addr", "h:5000"]
    adoption = adopt_words(*argv)
    assert load(adoption).settings.engine.args == ("--dist-init-addr", "h:5000")
    assert_same(argv, plan_of(adoption))


def test_vllm_listens_where_it_did() -> None:
    server = load(adopt_words("vllm", "serve", "/m")).settings.server
    assert (server.host, server.port) == ("0.0.0.0", 8000)


def test_of_two_the_later_counts_and_is_said() -> None:
    adoption = adopt_words(*SGLANG, "--port", "1", "--port=2")
    assert load(adoption).settings.server.port == 2
    assert "KS108 info" in rules(adoption)
    assert noted(adoption, "--port 1", "word 8")


def test_what_no_setting_can_hold_stays_an_argument() -> None:
    argv = [
        *SGLANG,
        "--port",
        "http",
        "--log-level",
        "critical",
        "--trust-remote",
        "--no-such",
        "1",
    ]
    adoption = adopt_words(*argv)
    args = load(adoption).settings.engine.args
    assert args == ("--port", "http", "--log-level", "critical", "--no-such", "1")
    assert load(adoption).settings.model.trust_remote_code
    assert "unknown to sglang" in adoption.text


def test_abbreviations_are_written_in_full() -> None:
    args = load(adopt_words(*SGLANG, "--tp", "8", "--dp=2")).settings.engine.args
    assert args == ("--tp-size", "8", "--dp-size=2")


def test_a_file_behind_an_equals_sign_is_not_read_and_that_is_said(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("port: 9\n", encoding="utf-8")
    adoption = adopt_words(*SGLANG, f"--config={file}")
    assert load(adoption).settings.server.port == 30000
    assert "KS202 warning" in rules(adoption)


def test_a_file_is_merged_below_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(
        "port: 9\nhost: 0.0.0.0\nport: 10\ntp-size: 010\napi-key: null\nenable-metrics: true\n"
        "skip-server-warmup: false\nmm-process-config: {image: {a: 1}}\n",
        encoding="utf-8",
    )
    adoption = adopt_words(*SGLANG, "--config", str(file), "--host", "::1")
    settings = load(adoption).settings
    assert (settings.server.host, settings.server.port) == ("::1", 10)
    assert settings.engine.args == (
        "--tp-size", "8", "--enable-metrics", "--mm-process-config", '{"image": {"a": 1}}',
    )  # fmt: skip
    assert noted(adoption, "skip-server-warmup", "dropped")
    assert noted(adoption, "port stands in line 1 too")
    assert noted(adoption, "null becomes the text None")
    assert adoption.exports == {"KIMI_API_KEY": "None"}


def test_vllm_drops_false_and_that_is_said(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("enable-prefix-caching: false\nmax_num_seqs: 4\n", encoding="utf-8")
    adoption = adopt_words("vllm", "serve", "/m", "--config", str(file))
    assert load(adoption).settings.engine.args == ("--max_num_seqs", "4")
    assert noted(adoption, "enable-prefix-caching", "dropped")


def test_a_file_that_is_not_here_stays_and_is_said() -> None:
    adoption = adopt_words(*SGLANG, "--config", "/nowhere/c.yaml")
    assert load(adoption).settings.engine.args == ("--config", "/nowhere/c.yaml")
    assert noted(adoption, "/nowhere/c.yaml cannot be read here")


SCRIPT = """#!/bin/sh
# starts the model
set -e
export NCCL_DEBUG=INFO DATABASE_PASSWORD=hunter22 STAGE=prod
MODEL=/models/k
EXTRA="--tp 8 --enable-metrics"
ARGS=(--port 31000 --served-model-name "a b")
cd /srv && \\
  OMP_NUM_THREADS=8 nohup python -m sglang.launch_server \\
    --model-path "$MODEL" $EXTRA "${ARGS[@]}" --host ${HOST:-0.0.0.0} \\
    --max-running-requests $(nproc) > log.txt 2>&1 &
"""


def test_a_script_is_read_as_far_as_reading_goes() -> None:
    adoption = adopt_text(SCRIPT)
    settings = load(adoption).settings
    assert (settings.model.path, settings.model.served_name) == ("/models/k", "a b")
    assert (settings.server.host, settings.server.port) == ("0.0.0.0", 31000)
    assert settings.engine.args == (
        "--tp-size", "8", "--enable-metrics", "--max-running-requests", "$(nproc)",
    )  # fmt: skip
    assert settings.engine.env == {"NCCL_DEBUG": "INFO", "OMP_NUM_THREADS": "8"}
    for words in (
        ("cd /srv", "another command"), ("nohup",), (">log.txt",), ("2>&1",), ("STAGE",),
        ("DATABASE_PASSWORD",), ("set -e",), ("$(nproc)", "running shell"),
    ):  # fmt: skip
        assert noted(adoption, *words), words
    assert "default of HOST" in adoption.text
    assert "hunter22" not in adoption.text + "".join(adoption.notes)


def test_single_quotes_keep_a_dollar_sign_and_double_ones_refer() -> None:
    adoption = adopt_text("vllm serve /m --chat-template '${A}' --seed \"${B}\" --dtype $C")
    loaded = load(adoption, {"B": "7", "C": "auto"})
    assert loaded.settings.engine.args == (
        "--chat-template",
        "${A}",
        "--seed",
        "7",
        "--dtype",
        "auto",
    )


def test_windows_line_ends_are_said() -> None:
    adoption = adopt_text("vllm serve /m \\\r\n --port 9\r\n")
    assert load(adoption).settings.server.port == 9
    assert noted(adoption, "Windows line ends")


def test_a_pasted_dash_is_not_guessed() -> None:
    adoption = adopt_text("vllm serve /m \u2013\u2013port 9")
    found = lint_profile(adoption.text.encode(), name="p.yaml", folder=Path(".")).findings
    assert "KS006" in {each.rule for each in found}


DOCKER = (
    "docker run -d --gpus '\"device=2,3\"' -p 8000:30000 -e HF_TOKEN --env NCCL_DEBUG=INFO "
    "-v /a:/b lmsysorg/sglang:v0.5.23-cu129 python3 -m sglang.launch_server --model-path /m --tp 2"
)


def test_docker_run_is_read() -> None:
    adoption = adopt_text(DOCKER)
    settings = load(adoption, {"HF_TOKEN": "x"}).settings
    assert settings.engine.version == "0.5.23"
    assert settings.gpu.ids == ("0", "1")  # as they are called inside
    assert settings.engine.env == {"HF_TOKEN": "x", "NCCL_DEBUG": "INFO"}
    assert rules(adoption) == ["KS401 warning", "KS307 warning"]
    for option in ("-d", "--gpus", "-p 8000:30000", "-v /a:/b"):
        assert noted(adoption, "left out", option)


@pytest.mark.parametrize(
    ("change", "gone"),
    [
        ("--ipc=host", "KS307 warning"),
        ("--ipc host", "KS307 warning"),
        ("--shm-size 32g", "KS307 warning"),
        ("--network host", "KS401 warning"),
    ],
)
def test_options_of_a_container_that_matter(change: str, gone: str) -> None:
    adoption = adopt_text(DOCKER.replace("run -d", f"run -d {change}"))
    assert gone not in rules(adoption)
    assert len(rules(adoption)) == 1


def test_what_the_host_exports_does_not_reach_a_container() -> None:
    adoption = adopt_text(
        f"export HF_HOME=/c OMP_NUM_THREADS=4\n{DOCKER.replace('HF_TOKEN', 'HF_HOME')}"
    )
    assert load(adoption).settings.engine.env == {"HF_HOME": "/c", "NCCL_DEBUG": "INFO"}
    assert noted(adoption, "OMP_NUM_THREADS", "does not reach the container")


def test_an_env_file_of_docker_is_read_where_it_is(tmp_path: Path) -> None:
    file = tmp_path / "a.env"
    file.write_text("HF_TOKEN=hf_secretsecret\nNCCL_DEBUG=INFO\nMY_OWN=1\n", encoding="utf-8")
    adoption = adopt_text(f"docker run --env-file {file} --env-file=/no img {' '.join(SGLANG)}")
    assert load(adoption).settings.engine.env == {
        "HF_TOKEN": "hf_secretsecret", "NCCL_DEBUG": "INFO",
    }  # fmt: skip
    assert "hf_secretsecret" not in adoption.text
    assert noted(adoption, "/no cannot be read here")
    assert noted(adoption, "MY_OWN", "left out")


COMPOSE = """
x-env: &env {HF_HOME: /cache}
services:
  cache: {image: redis, command: redis-server}
  llm:
    image: vllm/vllm-openai:v0.33.0
    command:
      - --model
      - ${MODEL:-/m}
      - --seed
      - $$x
    environment:
      <<: *env
      NCCL_DEBUG:
      OMP_NUM_THREADS: 8
    ports: ["8000:8000"]
    ipc: host
"""


def test_a_compose_file_is_read() -> None:
    adoption = adopt_text(COMPOSE)
    settings = load(adoption, {"NCCL_DEBUG": "WARN"}).settings
    assert (settings.engine.kind, settings.engine.version) == ("vllm", "0.33.0")
    assert settings.model.path == "/m"
    assert settings.engine.args == ("--seed", "$x")
    assert settings.engine.env == {
        "HF_HOME": "/cache", "NCCL_DEBUG": "WARN", "OMP_NUM_THREADS": "8",
    }  # fmt: skip
    assert noted(adoption, "redis-server", "another container")


POD = """
apiVersion: v1
kind: Service
---
apiVersion: v1
kind: Pod
spec:
  containers:
    - name: llm
      image: lmsysorg/sglang:latest
      command: [/bin/bash, -c]
      args:
        - |
          export OMP_NUM_THREADS=4
          exec sglang serve --model-path ${MODEL} --port $(PORT) --host 0.0.0.0
      env:
        - {name: MODEL, value: /models/k}
        - {name: PORT, value: "31000"}
        - name: HF_TOKEN
          valueFrom: {secretKeyRef: {name: hub, key: token}}
      resources: {limits: {nvidia.com/gpu: 8}}
"""


def test_a_kubernetes_object_is_read() -> None:
    adoption = adopt_text(POD)
    settings = load(adoption, {"HF_TOKEN": "x"}).settings
    assert settings.model.path == "/models/k"
    assert (settings.server.host, settings.server.port) == ("0.0.0.0", 31000)
    assert settings.engine.env["OMP_NUM_THREADS"] == "4"
    assert settings.engine.env["HF_TOKEN"] == "x"
    assert noted(adoption, "resources")


@pytest.mark.parametrize(
    "text",
    [
        '["vllm", "serve", "/m"]',
        "- vllm\n- serve\n- /m\n",
        "command: vllm serve /m\n",
        "command: [vllm]\nargs: [serve, /m]\n",
        "entrypoint: [vllm, serve]\ncommand: [/m]\n",
        "- image: x\n  command: [vllm, serve, /m]\n",
    ],
)
def test_lists_and_parts_of_manifests_are_read(text: str) -> None:
    assert load(adopt_text(text)).settings.model.path == "/m"


def test_a_given_file_of_variables_counts_and_must_be_there(tmp_path: Path) -> None:
    file = tmp_path / "a.env"
    file.write_text("MODEL=/models/k\nSGLANG_FORCE_CPU_IMAGE_PREPROCESSING=1\n", encoding="utf-8")
    told = Told()
    given = tuple(read_env_files([EnvFile(Word(str(file)))], told, is_required=True))
    text = "python -m sglang.launch_server --model-path $MODEL"
    settings = load(adopt(find_in_text(text, told, given), told, given)).settings
    assert settings.model.path == "/models/k"
    assert settings.image.force_cpu_preprocessing
    with pytest.raises(ConfigError, match="cannot be read"):
        list(read_env_files([EnvFile(Word(str(tmp_path / "no")))], told, is_required=True))


def test_a_comment_cannot_switch_lint_off() -> None:
    adoption = adopt_words(*SGLANG, "--no-such", "--host", "# kimi-serve: ignore-file[KS103] x")
    found = lint_profile(adoption.text.encode(), name="p.yaml", folder=Path(".")).findings
    assert "KS103" in {each.rule for each in found}


@pytest.mark.parametrize(
    "text", ["on", "0.5", "1_000", "1:20", "null", "~", "", "a: b", "- x", "*x"]
)
def test_what_yaml_would_misread_is_quoted(text: str) -> None:
    assert scalar(text) == f'"{text}"'


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("all", ()),
        ("device=all", ()),
        ("device=0,0", ("0",)),
        ("2", ()),
        ("device=0,1", ("0", "1")),
        ('"device=GPU-a"', ("GPU-a",)),
    ],
)
def test_gpus_are_taken_where_they_are_named(text: str, ids: tuple[str, ...]) -> None:
    assert gpu_ids(Word(text)) == ids


def test_the_port_of_a_container_is_the_last() -> None:
    assert container_port(Word("127.0.0.1:8000:30000/tcp")) == ("127.0.0.1:8000", "30000")
