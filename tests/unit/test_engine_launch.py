"""From settings to an engine's argv and environment: tables, then what holds for all of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given as for_all
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from plan_factories import K3, K25, ONE_GPU, QWEN, make_checkpoint, make_loaded, make_plan, only

from kimi_serve.launcher.engine_command import parse_arguments
from kimi_serve.launcher.engines.equivalents import EQUIVALENTS, WITHOUT, engine_words
from kimi_serve.launcher.resolver.engine_view import text_of
from kimi_serve.schemas.engine_facts import engine_table
from kimi_serve.schemas.engine_launch import EngineInstall, EngineLaunch
from kimi_serve.schemas.fields import setting_fields
from kimi_serve.schemas.findings import Finding

FORCE = "image.force_cpu_preprocessing"
WORKERS = "tokenizer.worker_num"
TRUST = "model.trust_remote_code"
SWITCH = "SGLANG_FORCE_CPU_IMAGE_PREPROCESSING"


def launch_of(kind: str, given: dict[str, Any] | None = None, **more: Any) -> EngineLaunch:
    plan = make_plan({"engine.kind": kind, **(given or {})}, **more)
    assert plan.launch is not None
    return plan.launch


def found(kind: str, given: dict[str, Any], **more: Any) -> list[Finding]:
    findings = make_plan({"engine.kind": kind, **given}, **more).findings
    return [finding for finding in findings if finding.severity != "info"]


def variables(launch: EngineLaunch) -> dict[str, str | None]:
    return {variable.name: variable.value for variable in launch.variables}


def test_the_recipe_for_sixteen_workers_with_images_on_the_cpu() -> None:
    given = {TRUST: True, WORKERS: 16, FORCE: True}
    launch = launch_of("sglang", given, hardware=ONE_GPU)
    assert launch.argv() == (
        *("python", "-m", "sglang.launch_server"),
        *("--model-path", "./model", "--trust-remote-code"),
        *("--host", "127.0.0.1", "--port", "30000"),
        *("--tokenizer-worker-num", "16"),
        *("--mm-feature-transport", "cpu"),
        *("--mm-processor-worker-num", "2", "--mm-io-worker-num", "16"),
    )
    assert variables(launch) == {
        "SGLANG_UVICORN_WORKER_HEALTHCHECK_TIMEOUT": "60",
        "SGL_FORCE_CPU_IMAGE_PREPROCESSING": None,
        SWITCH: "1",
        "SGLANG_USE_CUDA_IPC_TRANSPORT": None,
    }
    ready = launch.readiness
    assert (ready.paths, ready.consecutive, ready.log_count) == (("/ready", "/health"), 16, 16)
    assert (launch.stopping.drains, launch.stopping.load_path) == (False, "/v1/loads")


def test_the_smallest_command_of_vllm() -> None:
    launch = launch_of("vllm")
    assert launch.argv() == (
        *("python", "-m", "vllm.entrypoints.cli.main", "serve", "./model"),
        *("--host", "127.0.0.1", "--port", "30000"),
        *("--shutdown-timeout", "30", "--api-server-count", "1"),
    )
    assert launch.variables == ()
    assert launch.readiness.url == "http://127.0.0.1:30000"
    assert launch.stopping.drains


@pytest.mark.parametrize(
    ("kind", "given", "words"),
    [
        ("sglang", {"model.revision": "abc"}, "--revision abc"),
        ("sglang", {"model.tokenizer_path": "/t"}, "--tokenizer-path /t"),
        ("vllm", {"model.tokenizer_path": "/t"}, "--tokenizer /t"),
        ("sglang", {"tokenizer.skip_init": True}, "--skip-tokenizer-init"),
        ("sglang", {"log.level": "debug"}, "--log-level debug"),
        ("vllm", {"log.level": "debug"}, "--uvicorn-log-level debug"),
        ("sglang", {"gpu.mem_fraction_static": 0.8}, "--mem-fraction-static 0.8"),
        ("vllm", {"gpu.mem_fraction_static": 0.8}, "--gpu-memory-utilization 0.8"),
        ("sglang", {"media.allowed_domains": ("a.b", "c.d")}, "--allowed-media-domains a.b c.d"),
        ("vllm", {"media.allowed_local_dirs": ("/d",)}, "--allowed-local-media-path /d"),
        ("sglang", {"media.max_bytes": 3 * 2**20 + 1}, "--media-url-max-file-size-mb 3"),
        ("sglang", {"media.max_bytes": 5}, "--media-url-max-file-size-mb 1"),
        ("sglang", {"image.max_per_request": 5}, '--limit-mm-data-per-request {"image": 5}'),
        ("vllm", {"image.max_per_request": 5}, '--limit-mm-per-prompt {"vision_chunk": 5}'),
        ("vllm", {FORCE: True}, "--mm-processor-device cpu"),
        ("vllm", {WORKERS: 4}, "--api-server-count 4"),
        ("vllm", {"server.drain_timeout_s": 2.1}, "--shutdown-timeout 3"),
    ],
)
def test_a_setting_becomes_a_flag(kind: str, given: dict[str, Any], words: str) -> None:
    launch = launch_of(kind, given)
    (path,) = given
    flags = {" ".join(flag.words): flag for flag in launch.flags}
    assert flags[words].path == path
    assert flags[words].origin.name == "prod.yaml"
    assert flags[words].reason


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"image.max_pixels": 7}, {"VLLM_MAX_IMAGE_PIXELS": "7"}),
        ({"media.max_bytes": 2**21}, {"VLLM_MAX_MEDIA_DOWNLOAD_SIZE_MB": "2"}),
        ({"media.timeout_s": 7.5}, {"VLLM_IMAGE_FETCH_TIMEOUT": "8"}),
        ({"media.max_redirects": 0}, {"VLLM_MEDIA_URL_ALLOW_REDIRECTS": "0"}),
        ({"media.max_redirects": 2}, {"VLLM_MEDIA_URL_ALLOW_REDIRECTS": "1"}),
        ({"log.level": "warning"}, {"VLLM_LOGGING_LEVEL": "WARNING"}),
        ({"server.api_key": "geheim-123"}, {"VLLM_API_KEY": "geheim-123"}),
        ({WORKERS: 4}, {"NUMBA_NUM_THREADS": "2"}),
        ({WORKERS: 16}, {"NUMBA_NUM_THREADS": "1"}),
        ({WORKERS: 4, "engine.env": {"NUMBA_NUM_THREADS": "7"}}, {"NUMBA_NUM_THREADS": "7"}),
    ],
)
def test_a_setting_becomes_a_variable_of_vllm(
    given: dict[str, Any], expected: dict[str, str]
) -> None:
    assert variables(launch_of("vllm", given)) == expected


@pytest.mark.parametrize(
    ("architecture", "env", "given", "expected"),
    [
        (K25, {}, {}, {SWITCH: "0"}),
        (K25, {SWITCH: "1"}, {FORCE: False}, {SWITCH: "0"}),
        (K25, {}, {"engine.env": {SWITCH: "yes"}}, {SWITCH: "1"}),
        (K3, {}, {FORCE: True}, {}),
        (QWEN, {SWITCH: "1"}, {}, {SWITCH: None}),
    ],
)
def test_the_switch_is_exact_where_it_is_honoured(
    architecture: str, env: dict[str, str], given: dict[str, Any], expected: dict[str, str | None]
) -> None:
    checkpoint = make_checkpoint(architecture)
    launch = launch_of("sglang", given, env=env, checkpoint=checkpoint)
    assert {n: v for n, v in variables(launch).items() if n == SWITCH} == expected
    assert variables(launch)["SGL_FORCE_CPU_IMAGE_PREPROCESSING"] is None


def test_the_variables_of_kimi_serve_do_not_reach_an_engine() -> None:
    env = {"KIMI_SERVE_SERVER__API_KEY": "geheim", "PATH": "/bin"}
    for kind in ("sglang", "vllm"):
        assert launch_of(kind, env=env).environment(env).get("PATH") == "/bin"
        assert "KIMI_SERVE_SERVER__API_KEY" not in launch_of(kind, env=env).environment(env)


@pytest.mark.parametrize(
    ("kind", "args", "words"),
    [
        ("sglang", ["--tp", "8"], "--tp-size 8"),
        ("sglang", ["--tokenizer-worker", "8"], "--tokenizer-worker-num 8"),
        ("sglang", ["--context-length=8192"], "--context-length 8192"),
        ("sglang", ["--disable-fast-image-processor"], "--image-processor-backend pil"),
        ("sglang", ["--nccl-init-addr", "h:1"], "--dist-init-addr h:1"),
        ("sglang", ["--chat-template=-x"], "--chat-template=-x"),
        ("vllm", ["-tp", "8"], "--tensor-parallel-size 8"),
        ("vllm", ["--max_model_len=1k"], "--max-model-len 1k"),
        ("vllm", ["-O3"], "--optimization-level 3"),
        ("vllm", ["--no-enable-prefix-caching"], "--no-enable-prefix-caching"),
        ("vllm", ["--compilation-config.level", "3"], "--compilation-config.level 3"),
        ("vllm", ["--limit_mm_per_prompt.video=0"], "--limit-mm-per-prompt.video 0"),
    ],
)
def test_the_engines_own_words_are_spelt_out(kind: str, args: list[str], words: str) -> None:
    launch = launch_of(kind, {"engine.args": args})
    flags = [flag for flag in launch.flags if flag.path == "engine.args"]
    assert [" ".join(flag.words) for flag in flags] == [words]


def test_what_engine_args_say_is_not_said_twice() -> None:
    args = ["--port", "8000", "--tokenizer-worker-num", "4", "--host=0.0.0.0"]
    launch = launch_of("sglang", {"engine.args": args})
    assert (launch.host, launch.port) == ("0.0.0.0", 8000)
    assert launch.readiness.url == "http://127.0.0.1:8000"
    assert launch.readiness.consecutive == 4
    words = launch.argv()
    assert all(words.count(name) == 1 for name in ("--port", "--host", "--tokenizer-worker-num"))


def test_a_value_with_a_dash_is_joined_to_its_flag() -> None:
    launch = launch_of("sglang", {"model.served_name": "-x", "server.api_key": "-geheim"})
    assert "--served-model-name=-x" in launch.argv()
    assert "--api-key=-geheim" in launch.argv()
    assert "--api-key=${KIMI_SERVE_SERVER__API_KEY}" in {
        word for flag in launch.flags for word in flag.shown
    }


def test_an_equal_repetition_is_dropped_and_another_one_is_an_error() -> None:
    given = {"server.port": 8000, "engine.args": ["--port=8000"]}
    assert launch_of("sglang", given).argv().count("--port") == 1
    errors = found("sglang", given | {"engine.args": ["--port", "8001"]})
    assert "KS203" in [finding.rule for finding in errors]


@pytest.mark.parametrize("word", [["org/model"], ["--model", "org/model"], ["--model=org/model"]])
def test_a_model_that_engine_args_name_stands_in_front(word: list[str]) -> None:
    given = {"model.path": None, "engine.args": ["-tp", "8", *word]}
    assert launch_of("vllm", given).argv()[4:5] == ("org/model",)
    given["engine.args"] = ["--tp", "8", *word]
    assert launch_of("sglang", given).argv()[3:5] == ("--model-path", "org/model")


NODES = {
    "engine.nodes.count": 2,
    "engine.nodes.rank": 1,
    "engine.nodes.address": "[fd00::1]:29501",
}


def test_a_second_machine() -> None:
    sglang = launch_of("sglang", NODES)
    assert sglang.argv()[-6:] == (
        *("--nnodes", "2", "--node-rank", "1"),
        *("--dist-init-addr", "[fd00::1]:29501"),
    )
    assert (sglang.readiness.paths, sglang.readiness.consecutive) == (("/health",), 1)
    assert not sglang.stopping.drains
    vllm = launch_of("vllm", NODES | {WORKERS: 4, "server.api_key": "geheim"})
    assert vllm.argv()[5:] == (
        *("--headless", "--nnodes", "2", "--node-rank", "1"),
        *("--master-addr", "fd00::1", "--master-port", "29501"),
    )
    assert (vllm.readiness.url, vllm.variables) == ("", ())
    assert "--nnodes" not in launch_of("vllm", {"engine.nodes.count": 1}).argv()


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({"engine.nodes.count": 2}, "KS105"),
        (NODES | {"engine.nodes.rank": 2}, "KS104"),
        (NODES | {"engine.nodes.address": "host"}, "KS104"),
        (NODES | {"engine.nodes.address": "host:99999"}, "KS104"),
        ({"engine.nodes.address": "host:1"}, "KS202"),
        (NODES | {"engine.args": ["--nnodes", "3"]}, "KS203"),
        ({"server.port": 0}, "KS104"),
    ],
)
@pytest.mark.parametrize("kind", ["sglang", "vllm"])
def test_what_cannot_be_started_is_refused(kind: str, given: dict[str, Any], rule: str) -> None:
    assert rule in [finding.rule for finding in found(kind, {TRUST: True, **given})]


@pytest.mark.parametrize(
    ("kind", "given", "words"),
    [
        ("vllm", {"server.api_key": "geheim", "engine.env": {"VLLM_API_KEY": "anders"}}, "again"),
        ("vllm", {"media.timeout_s": 5.0, "engine.env": {"VLLM_IMAGE_FETCH_TIMEOUT": "9"}}, "9"),
        ("vllm", {"log.level": "info", "engine.env": {"VLLM_LOGGING_LEVEL": "DEBUG"}}, "log.level"),
        ("sglang", {FORCE: True, "engine.args": ["--mm-feature-transport", "cuda_ipc"]}, "context"),
        (
            "sglang",
            {FORCE: True, "engine.env": {"SGLANG_USE_CUDA_IPC_TRANSPORT": "1"}},
            "context",
        ),
    ],
)
def test_what_contradicts_the_plan_is_refused(kind: str, given: dict[str, Any], words: str) -> None:
    errors = [each for each in found(kind, given) if each.severity == "error"]
    assert [each.rule for each in errors if words in each.message] == ["KS203"]
    assert "geheim" not in str(errors)
    assert "anders" not in str(errors)


def test_the_switch_in_engine_env_against_the_setting_is_refused() -> None:
    for name in (SWITCH, "SGL_FORCE_CPU_IMAGE_PREPROCESSING"):
        errors = found("sglang", {FORCE: True, "engine.env": {name: "0"}})
        assert "KS601" in [finding.rule for finding in errors]


def test_every_setting_without_an_equivalent_is_said() -> None:
    values = {"image.policy": "checkpoint", "image.dtype": "uint8", "media.max_redirects": 1}
    said = {each.path for each in found("sglang", values) if each.rule == "KS202"}
    assert said == set(values)
    folders = found("vllm", {"media.allowed_local_dirs": ("/a", "/b")})
    assert "gets none" in folders[0].message


def test_the_version_that_is_installed_counts_and_a_difference_is_said() -> None:
    install = EngineInstall("/opt/e/bin/python", "0.5.24")
    plan = make_plan({"engine.kind": "sglang"}, install=install)
    assert plan.engine_version == "0.5.24"
    assert plan.launch is not None
    assert plan.launch.head[0] == "/opt/e/bin/python"
    plan = make_plan({"engine.kind": "sglang", "engine.version": "0.5.23"}, install=install)
    assert plan.engine_version == "0.5.23"
    assert "installed is 0.5.24" in only(plan, "KS207").message


def test_the_built_in_workers_have_no_launch() -> None:
    assert make_plan().launch is None


def test_replicas_of_vllm_bring_their_api_servers() -> None:
    plan = make_plan({"engine.kind": "vllm", "engine.args": ["--data-parallel-size", "4"]})
    assert plan.worker_num.value == 4
    assert plan.launch is not None
    assert "--api-server-count" not in plan.launch.argv()


def test_the_table_for_people_is_the_one_that_is_written() -> None:
    """Every emitted word of a setting is in EQUIVALENTS, and every word there is emitted."""
    emitted: dict[str, dict[str, set[str]]] = {"sglang": {}, "vllm": {}}
    everything: dict[str, Any] = {
        **{"model.revision": "r", "model.tokenizer_path": "t", "model.served_name": "s"},
        **{TRUST: True, "server.api_key": "k", WORKERS: 4, "tokenizer.skip_init": True},
        **{FORCE: True, "image.max_pixels": 5, "image.max_per_request": 5, "log.level": "info"},
        **{"media.allowed_domains": ("a.b",), "media.allowed_local_dirs": ("/d",)},
        **{"media.max_bytes": 2**20, "media.timeout_s": 1.0, "media.max_redirects": 1},
        **{"gpu.mem_fraction_static": 0.8, "gpu.ids": ("0",)},
    }
    for kind, table in emitted.items():
        for nodes in ({}, NODES):
            launch = launch_of(kind, everything | nodes)
            for said in (*launch.flags, *launch.variables):
                name = said.name or "the first word behind serve"
                table.setdefault(said.path, set()).add(name)
        assert table == {path: set(words) for path, words in EQUIVALENTS[kind].items()}
        assert not set(WITHOUT[kind]) & set(EQUIVALENTS[kind])
        assert set(WITHOUT[kind]) | set(EQUIVALENTS[kind]) <= set(setting_fields())
    assert engine_words("log.format") == []


DOMAINS = st.lists(st.from_regex(r"[a-z]{1,8}\.[a-z]{2,3}", fullmatch=True), min_size=1, max_size=3)
SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "model.revision": st.from_regex(r"[a-z0-9]{1,12}", fullmatch=True),
        "model.served_name": st.from_regex(r"[a-z0-9. ]{1,12}", fullmatch=True),
        TRUST: st.just(True),
        "server.host": st.sampled_from(["0.0.0.0", "::", "localhost"]),
        "server.port": st.integers(1024, 65535),
        WORKERS: st.integers(1, 64),
        FORCE: st.booleans(),
        "image.max_per_request": st.integers(1, 99),
        "media.allowed_domains": DOMAINS.map(tuple),
        "media.max_bytes": st.integers(1, 2**32),
        "gpu.mem_fraction_static": st.floats(0.01, 0.99),
        "log.level": st.sampled_from(["debug", "info", "warning", "error"]),
    },
)


@for_all(kind=st.sampled_from(["sglang", "vllm"]), given=SETTINGS)
@hypothesis_settings(max_examples=30, deadline=None)
def test_the_engine_reads_every_setting_back(kind: str, given: dict[str, Any]) -> None:
    launch = launch_of(kind, given)
    table = engine_table(kind)
    assert table is not None
    words = launch.argv()[len(launch.head) :]
    parsed = parse_arguments(words, table, words=int(kind == "vllm"))
    assert not [argument for argument in parsed if argument.problem]
    # Canonical: the long flag, its value apart.
    assert all(each.spelling in ("", each.flag.flag) for each in parsed if each.flag)
    assert not any(each.inline or each.abbreviated for each in parsed)
    read = {each.flag.flag: text_of(each) for each in parsed if each.flag}
    for flag in launch.flags:
        if flag.name:
            assert read[flag.name] == (" ".join(flag.values) or "true")
    settings = make_loaded({"engine.kind": kind, **given}).settings
    workers = "--tokenizer-worker-num" if kind == "sglang" else "--api-server-count"
    assert read[workers] == str(settings.tokenizer.worker_num)
    assert (read["--host"], read["--port"]) == (settings.server.host, str(settings.server.port))
    assert (read.get("--trust-remote-code") == "true") == settings.model.trust_remote_code
    assert read.get("--allowed-media-domains", "").split() == list(settings.media.allowed_domains)
