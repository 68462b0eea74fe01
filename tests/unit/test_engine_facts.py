"""The engine tables: lookups, and what each boolean parser makes of each text."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kimi_serve.schemas.engine_facts import (
    BooleanOutcome,
    EngineTable,
    EnvFacts,
    FlagFacts,
    checked_versions,
    engine_table,
    engines,
    read_boolean,
)

# The texts that people write for a switch, by parser: what the engine makes of them.
BOOLEANS: dict[str, dict[str, BooleanOutcome]] = {
    "env-bool": {
        "1": True,
        "0": False,
        "true": True,
        "false": False,
        "True": True,
        "FALSE": False,
        "yes": True,
        "no": False,
        "y": True,
        "n": False,
        "on": "default",
        "off": "default",
        "t": "default",
        "f": "default",
        "2": "default",
        "enable": "default",
        "": "default",
        " true ": "default",
        "1 ": "default",
        "\N{NO-BREAK SPACE}1": "default",
    },
    "get-bool": {
        "1": True,
        "0": False,
        "true": True,
        "false": False,
        "TRUE": True,
        "yes": False,
        "no": False,
        "on": False,
        "off": False,
        "t": False,
        "f": False,
        "": False,
        " true ": False,
        "\N{NO-BREAK SPACE}1": False,
    },
    "bool-int": {
        "1": True,
        "0": False,
        "2": True,
        "-1": True,
        "00": False,
        "true": "crash",
        "false": "crash",
        "yes": "crash",
        "no": "crash",
        "on": "crash",
        "off": "crash",
        "t": "crash",
        "f": "crash",
        "": "crash",
        " true ": "crash",
        " 1 ": True,
        "1.0": "crash",
        "\N{NO-BREAK SPACE}1": True,
    },
    "lower in (1, true)": {
        "1": True,
        "0": False,
        "true": True,
        "false": False,
        "True": True,
        "yes": False,
        "no": False,
        "on": False,
        "off": False,
        "t": False,
        "f": False,
        "": False,
        " true ": False,
        "\N{NO-BREAK SPACE}1": False,
    },
    "strip lower in (1, true)": {
        "1": True,
        "0": False,
        " True ": True,
        "\N{NO-BREAK SPACE}1": True,
        "yes": False,
        "": False,
    },
    "in (1)": {
        "1": True,
        "0": False,
        "true": False,
        "false": False,
        "yes": False,
        "no": False,
        "on": False,
        "off": False,
        "t": False,
        "f": False,
        "": False,
        " true ": False,
        "\N{NO-BREAK SPACE}1": False,
    },
    "not in (0)": {"0": False, "1": True, "false": True, "": True},
    "strip table (1, 0)": {"1": True, "0": False, " 1 ": True, "true": "default", "": "default"},
    "any-text": {"": False, "0": True, "false": True},
}


def table(engine: str) -> EngineTable:
    found = engine_table(engine)
    assert found is not None
    return found


def flag(engine: str, name: str) -> FlagFacts:
    found = table(engine).flag(name)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("kind", "text", "outcome"),
    [(kind, text, out) for kind, texts in BOOLEANS.items() for text, out in texts.items()],
)
def test_a_boolean_text_means_what_the_engine_makes_of_it(
    kind: str, text: str, outcome: BooleanOutcome
) -> None:
    found = read_boolean(kind, text)
    assert (found, type(found)) == (outcome, type(outcome))


@pytest.mark.parametrize("engine", engines())
def test_every_boolean_kind_of_a_table_has_a_parser_that_takes_1_and_0(engine: str) -> None:
    kinds = {
        kind
        for variable in table(engine).environment.values()
        if variable.is_boolean
        for kind in (variable.kind, *variable.also)
    }
    assert {kind for kind in kinds if read_boolean(kind, "1") not in (True, False)} == set()
    # What we export for a switch is 1 or 0: only variables that are asked for their presence,
    # or compared with words, read these otherwise.
    odd = {k for k in kinds if (read_boolean(k, "1"), read_boolean(k, "0")) != (True, False)}
    assert odd <= {"any-text", "in (0)", "not in (1)", "lower in (true)", "lower in (0, false)"}


def test_a_kind_that_is_not_boolean_is_refused() -> None:
    with pytest.raises(ValueError, match="'int' is not a boolean kind"):
        read_boolean("int", "1")


def test_the_tables_are_of_the_releases_that_the_project_checks() -> None:
    assert engines() == ("sglang", "vllm")
    assert checked_versions("sglang")[-1] == "0.5.23"
    assert checked_versions("vllm")[-1] == "0.33.0"


@pytest.mark.parametrize(
    ("engine", "version", "expected"),
    [
        ("sglang", "", "0.5.23"),
        ("sglang", "0.5.23", "0.5.23"),
        ("sglang", "0.5.23.post1", "0.5.23"),
        ("sglang", "0.6.0", "0.5.23"),
        ("sglang", "0.5.22", None),
        ("vllm", "0.40.1", "0.33.0"),
        ("vllm", "0.9.0", None),
        ("none", "1.0", None),
    ],
)
def test_a_release_has_the_table_of_the_newest_checked_one_before_it(
    engine: str, version: str, expected: str | None
) -> None:
    found = engine_table(engine, version)
    assert (found.version if found else None) == expected


@pytest.mark.parametrize(
    ("engine", "name", "expected"),
    [
        ("sglang", "--tokenizer-worker-num", "--tokenizer-worker-num"),
        ("sglang", "--tensor-parallel-size", "--tp-size"),
        ("sglang", "--tp", "--tp-size"),
        ("sglang", "--trust-remote", "--trust-remote-code"),
        ("sglang", "--reasoning_parser", None),
        ("sglang", "--cuda-graph-max-bs", None),
        ("sglang", "--no-mm-enable-dp-encoder", "--mm-enable-dp-encoder"),
        ("sglang", "--max-model-len", None),
        ("vllm", "-tp", "--tensor-parallel-size"),
        ("vllm", "--max_model_len", "--max-model-len"),
        ("vllm", "--disable-log-requests", "--enable-log-requests"),
        ("vllm", "--no-enable-prefix-caching", "--enable-prefix-caching"),
        ("vllm", "--device-memory-utilization", "--gpu-memory-utilization"),
        ("vllm", "--api-server", "--api-server-count"),
        ("vllm", "--swap-space", None),
        ("vllm", "--", None),
    ],
)
def test_a_flag_is_found_by_each_spelling_that_the_engine_takes(
    engine: str, name: str, expected: str | None
) -> None:
    found = table(engine).flag(name)
    assert (found.flag if found else None) == expected


def test_an_ambiguous_abbreviation_names_what_it_could_mean() -> None:
    assert table("sglang").matches("--cuda-graph-max-bs") == (
        "--cuda-graph-max-bs-decode",
        "--cuda-graph-max-bs-prefill",
    )


def test_a_flag_knows_its_type_its_default_and_how_many_values_it_takes() -> None:
    workers = flag("sglang", "--tokenizer-worker-num")
    assert (workers.type, workers.default, workers.least, workers.most) == ("int", 1, 1, 1)
    assert flag("sglang", "--model-path").required
    assert flag("sglang", "--mm-feature-transport").choices == ("cpu", "cuda_ipc", "cuda_vmm")
    switch = flag("sglang", "--trust-remote-code")
    assert switch.is_switch
    assert (switch.least, switch.most) == (0, 0)
    names = flag("vllm", "--served-model-name")
    assert (names.least, names.most) == (1, None)
    optional = flag("vllm", "--hf-token")
    assert (optional.least, optional.most) == (0, 1)
    assert flag("vllm", "--mm-processor-cache-gb").default == 4
    assert flag("vllm", "--mm-encoder-tp-mode").choices == ("data", "weights")


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("--disable-fast-image-processor", "--image-processor-backend=pil"),
        ("--enable-dp-attention", "--attn-dp-size <dp-size>"),
        ("--disable-cuda-graph", "--cuda-graph-backend-{decode,prefill}=disabled"),
        ("--monokernel-backend", "--enable-amd-monokernel"),
        ("--grpc-mode", "--smg-grpc-mode"),
        ("--mm-feature-transport", ""),
    ],
)
def test_a_deprecated_flag_says_what_to_write(name: str, instead: str) -> None:
    assert flag("sglang", name).deprecated == instead


def test_the_flag_of_a_field_is_the_one_to_write_today() -> None:
    assert table("sglang").by_field["enable_amd_monokernel"].flag == "--enable-amd-monokernel"


@pytest.mark.parametrize(
    ("engine", "name", "kind", "deprecated_by"),
    [
        ("sglang", "SGLANG_FORCE_CPU_IMAGE_PREPROCESSING", "env-bool", ""),
        (
            "sglang",
            "SGL_FORCE_CPU_IMAGE_PREPROCESSING",
            "env-bool",
            "SGLANG_FORCE_CPU_IMAGE_PREPROCESSING",
        ),
        ("sglang", "SGLANG_MM_FEATURE_CACHE_MB", "int", ""),
        ("sglang", "SGLANG_USE_CUDA_IPC_TRANSPORT", "env-bool", "--mm-feature-transport cuda_ipc"),
        ("sglang", "SGLANG_FORCE_SHUTDOWN", "env-bool", "SGL_FORCE_SHUTDOWN"),
        ("sglang", "SGL_FORCE_SHUTDOWN", "get-bool", ""),
        ("sglang", "SGLANG_ENABLE_CP_V2", "str", "nothing: leave it out"),
        ("sglang", "SGLANG_CPU_WORKERS", "int", ""),
        ("vllm", "VLLM_MEDIA_URL_ALLOW_REDIRECTS", "bool-int", ""),
        ("vllm", "VLLM_USE_MODELSCOPE", "strip lower in (1, true)", ""),
        ("vllm", "VLLM_WORKER_MULTIPROC_METHOD", "choice", ""),
    ],
)
def test_a_variable_knows_its_parser_and_its_successor(
    engine: str, name: str, kind: str, deprecated_by: str
) -> None:
    found = table(engine).env(name)
    assert found is not None
    assert (found.kind, found.deprecated_by) == (kind, deprecated_by)


def test_a_variable_under_an_old_prefix_is_its_twin() -> None:
    twin = EnvFacts("NEW_A", "choice", default="x", choices=("x", "y"), secret=True, declared=False)
    known = replace(table("sglang"), renamed_prefixes={"OLD_": "NEW_"}, environment={"NEW_A": twin})
    assert known.env("OLD_A") == replace(twin, name="OLD_A", deprecated_by="NEW_A")
    assert known.env("OLD_B") is None


def test_a_variable_that_two_parsers_read_names_both() -> None:
    found = table("sglang").env("SGLANG_USE_AITER")
    assert found is not None
    assert (found.kind, found.also) == ("env-bool", ("get-bool",))
    assert read_boolean(found.kind, "yes") is True
    assert read_boolean(found.also[0], "yes") is False


def test_a_misspelt_variable_is_unknown_though_it_is_the_engines() -> None:
    sglang = table("sglang")
    assert sglang.owns("SGLANG_FORCE_CPU_IMAGE_PREPROCESING")
    assert sglang.env("SGLANG_FORCE_CPU_IMAGE_PREPROCESING") is None
    assert sglang.env("SGL_NO_SUCH_THING") is None
    assert not sglang.owns("CUDA_VISIBLE_DEVICES")


def test_a_name_of_an_older_release_says_what_became_of_it() -> None:
    gone = table("sglang").removed("--keep-mm-feature-on-device")
    assert gone is not None
    assert gone.instead == "--mm-feature-transport cuda_ipc"
    assert table("vllm").removed("--swap_space") is not None
    assert table("vllm").removed("VLLM_USE_V1") is not None
    assert table("vllm").removed("--max-model-len") is None


@pytest.mark.parametrize("engine", engines())
def test_no_name_is_both_known_and_removed(engine: str) -> None:
    known = {*table(engine).by_spelling, *table(engine).environment}
    assert not known & table(engine).gone.keys()
