"""An engine's command line is read as the engine's own parser reads it."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kimi_serve.launcher.engine_command import (
    EngineArgument,
    find_command,
    keyed_text,
    last_keyed,
    parse_arguments,
)
from kimi_serve.launcher.engine_hints import (
    COUNTERPARTS,
    hint_for,
    hint_for_flag,
    hint_for_variable,
)
from kimi_serve.schemas.engine_facts import EngineTable, engine_table

DATA = Path(__file__).parents[1] / "data" / "commands.json"
CASES: list[dict[str, Any]] = json.loads(DATA.read_text(encoding="utf-8"))


def table(engine: str) -> EngineTable:
    found = engine_table(engine)
    assert found is not None
    return found


SGLANG = table("sglang")
VLLM = table("vllm")


def about(case: dict[str, Any], *rules: str) -> set[str]:
    return {finding["about"] for finding in case["findings"] if finding["rule"] in rules}


def parse(case: dict[str, Any]) -> tuple[EngineArgument, ...]:
    command = find_command(case["argv"])
    assert command is not None
    assert command.engine == case["engine"]
    args = case["argv"][command.start :]
    return parse_arguments(args, table(command.engine), words=command.words)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_the_flags_of_a_public_command_are_known_or_not_as_its_engine_says(
    case: dict[str, Any],
) -> None:
    arguments = parse(case)
    unknown = {each.spelling for each in arguments if each.problem in ("unknown", "ambiguous")}
    in_the_file = {finding for finding in about(case, "KS103") if "(in the file)" in finding}
    assert unknown == about(case, "KS103") - in_the_file
    refused = [each for each in arguments if each.problem]
    assert (not refused) or not case["valid_in_pinned_version"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_the_variables_of_a_public_command_are_known_or_not(case: dict[str, Any]) -> None:
    facts = table(case["engine"])
    unknown = {name for name in case["env"] if facts.owns(name) and facts.env(name) is None}
    assert unknown == about(case, "KS102")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_the_deprecated_names_of_a_public_command_are_marked(case: dict[str, Any]) -> None:
    flags = {each.spelling for each in parse(case) if each.flag and each.flag.deprecated}
    facts = table(case["engine"])
    variables = {name for name in case["env"] if (found := facts.env(name)) and found.deprecated_by}
    # The engine's help calls this one deprecated too; the case was written without it.
    assert (flags | variables) - {"--enable-flashinfer-allreduce-fusion"} == about(case, "KS109")


def test_the_keys_of_a_config_file_are_flags() -> None:
    case = next(case for case in CASES if "config_file" in case)
    keys: dict[str, object] = yaml.safe_load(case["config_file"])
    unknown = [key for key in keys if VLLM.flag(f"--{key.partition('.')[0]}") is None]
    assert unknown == ["swap-space"]
    assert hint_for_flag("--swap-space", VLLM).reason == "removed"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_every_word_of_a_command_belongs_to_one_argument(case: dict[str, Any]) -> None:
    command = find_command(case["argv"])
    assert command is not None
    spans = [(each.position, each.end) for each in parse(case)]
    assert [start for start, _ in spans] == [0, *(end for _, end in spans)][: len(spans)]
    assert spans[-1][1] == len(case["argv"]) - command.start


def show(engine: EngineTable, *args: str) -> list[tuple[str, tuple[str, ...], str]]:
    return [
        (each.flag.flag if each.flag else each.spelling, each.values, each.problem)
        for each in parse_arguments(args, engine, words=int(engine is VLLM))
    ]


@pytest.mark.parametrize(
    ("engine", "args", "expected"),
    [
        (SGLANG, ["--tp=8"], [("--tp-size", ("8",), "")]),
        (SGLANG, ["--port", "-1"], [("--port", ("-1",), "")]),
        (SGLANG, ["--port"], [("--port", (), "no value")]),
        (SGLANG, ["--port", "--tp", "8"], [("--port", (), "no value"), ("--tp-size", ("8",), "")]),
        (
            SGLANG,
            ["--allowed-media-domains", "a", "b", "--tp", "2"],
            [("--allowed-media-domains", ("a", "b"), ""), ("--tp-size", ("2",), "")],
        ),
        (
            SGLANG,
            ["--allowed-media-domains=a", "b"],
            [("--allowed-media-domains", ("a",), ""), ("", ("b",), "loose word")],
        ),
        (SGLANG, ["--model-checksum"], [("--model-checksum", (), "")]),
        (SGLANG, ["--lora-paths", "--tp=2"], [("--lora-paths", (), ""), ("--tp-size", ("2",), "")]),
        (SGLANG, ["--config=f.yaml"], [("--config", ("f.yaml",), "")]),
        (SGLANG, ["--chat-template", ""], [("--chat-template", ("",), "")]),
        (SGLANG, ["--chat-template", "-x y"], [("--chat-template", ("-x y",), "")]),
        (SGLANG, ["--enable-lora=1"], [("--enable-lora", ("1",), "unwanted value")]),
        (SGLANG, ["model"], [("", ("model",), "loose word")]),
        (SGLANG, ["--", "--tp"], [("--", (), ""), ("", ("--tp",), "loose word")]),
        (VLLM, ["m", "-tp", "8"], [("", ("m",), ""), ("--tensor-parallel-size", ("8",), "")]),
        (VLLM, ["-tp=8"], [("--tensor-parallel-size", ("8",), "")]),
        (VLLM, ["-qfp8"], [("--quantization", ("fp8",), "")]),
        (VLLM, ["-O3"], [("--optimization-level", ("3",), "")]),
        (VLLM, ["-O", "3"], [("--optimization-level", ("3",), "")]),
        (VLLM, ["-O=3"], [("--optimization-level", ("3",), "")]),
        (VLLM, ["-cc.mode", "3"], [("--compilation-config", ("3",), "")]),
        (VLLM, ["--compilation_config.mode=3"], [("--compilation-config", ("3",), "")]),
        (VLLM, ["--additional-config.a", "-b"], [("--additional-config", ("-b",), "")]),
        (VLLM, ["m", "n"], [("", ("m",), ""), ("", ("n",), "loose word")]),
        (VLLM, ["--zzz", "1", "2"], [("--zzz", ("1", "2"), "unknown")]),
    ],
)  # fmt: skip
def test_arguments_are_cut_where_argparse_cuts_them(
    engine: EngineTable, args: list[str], expected: list[tuple[str, tuple[str, ...], str]]
) -> None:
    assert show(engine, *args) == expected


def test_an_argument_knows_how_it_was_written() -> None:
    negative, dotted, short = parse_arguments(
        ["--no-enable-prefix-caching", "-cc.pass_config.x=1", "--api-server", "4"], VLLM
    )
    assert negative.negated
    assert (dotted.spelling, dotted.key, dotted.inline) == ("-cc", "pass_config.x", True)
    assert short.abbreviated
    assert short.full == "--api-server-count"
    assert not dotted.abbreviated


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--media-io-kwargs.a.b", "1", "--media_io_kwargs.a.c=x"], '{"a": {"b": 1, "c": "x"}}'),
        (["--media-io-kwargs.a", '{"b": 1}', "--media-io-kwargs.a.c=2"], '{"a": {"b": 1, "c": 2}}'),
        (["--media-io-kwargs.a", "1", "--media-io-kwargs.a.b", "2"], '{"a": {"b": 2}}'),
        (["--media-io-kwargs.a+", "x,y", "--media-io-kwargs.a+=z"], '{"a": ["x", "y", "z"]}'),
        (["--media-io-kw.a", "1", "--media-io-kwargs.b", "2"], '{"b": 2}'),
        (["--media-io-kwargs" + ".a" * 100_000, "1"], ""),
        (["--media-io-kwargs.a"], "{}"),
    ],
)  # fmt: skip
def test_keys_of_one_option_are_put_together_as_vllm_does(args: list[str], expected: str) -> None:
    assert keyed_text(last_keyed(parse_arguments(args, VLLM))) == expected


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["sglang", "serve", "m"], ("sglang", 2, 1)),
        (["/opt/bin/vllm", "serve"], ("vllm", 2, 1)),
        (["env", "A=1", "python3", "-m", "sglang.launch_server", "-x"], ("sglang", 5, 0)),
        (["python", "-m", "vllm.entrypoints.openai.api_server"], ("vllm", 3, 1)),
        (["vllm", "bench"], None),
        ([], None),
    ],
)  # fmt: skip
def test_the_engine_of_a_command_is_found(
    argv: list[str], expected: tuple[str, int, int] | None
) -> None:
    found = find_command(argv)
    assert ((found.engine, found.start, found.words) if found else None) == expected


@pytest.mark.parametrize(
    ("engine", "name", "reason", "instead"),
    [
        (SGLANG, "--reasoning_parser", "spelling", "--reasoning-parser"),
        (SGLANG, "-port", "spelling", "--port"),
        (SGLANG, "--Port", "spelling", "--port"),
        (SGLANG, "\N{EN DASH}port", "spelling", "--port"),
        (SGLANG, "--keep-mm-feature-on-device", "removed", "--mm-feature-transport cuda_ipc"),
        (SGLANG, "--enable-reasoning", "other engine", "--reasoning-parser"),
        (SGLANG, "--max-model-len", "other engine", "--context-length"),
        (SGLANG, "--max_model_len", "other engine", "--context-length"),
        (SGLANG, "--enable-auto-tool-choice", "other engine", ""),
        (SGLANG, "--tokenizer-worker-nums", "near", "--tokenizer-worker-num"),
        (SGLANG, "--zzz", "none", ""),
        (VLLM, "--mem-fraction-static", "other engine", "--gpu-memory-utilization"),
        (VLLM, "--swap-space", "removed", ""),
        (VLLM, "--tensor-paralel-size", "near", "--tensor-parallel-size"),
        (VLLM, "--" + "x" * 10_000, "none", ""),
    ],
)
def test_an_unknown_flag_gets_the_most_useful_hint(
    engine: EngineTable, name: str, reason: str, instead: str
) -> None:
    hint = hint_for_flag(name, engine)
    assert (hint.reason, hint.instead) == (reason, instead)


@pytest.mark.parametrize(
    ("engine", "name", "reason", "instead"),
    [
        (SGLANG, "SGLANG_MM_FEATURE_CACH_MB", "near", "SGLANG_MM_FEATURE_CACHE_MB"),
        (SGLANG, "SGLANG_ENABLE_SPEC_V2", "removed", ""),
        (VLLM, "VLLM_ATTENTION_BACKEND", "removed", "--attention-backend"),
        (VLLM, "VLLM_KIMI_CONV1D_BACKEND", "none", ""),
    ],
)  # fmt: skip
def test_an_unknown_variable_gets_a_hint(
    engine: EngineTable, name: str, reason: str, instead: str
) -> None:
    hint = hint_for_variable(name, engine)
    assert (hint.reason, hint.instead) == (reason, instead)


@pytest.mark.parametrize(
    ("engine", "word", "instead"),
    [
        (VLLM, "--enable-prefix-caching=False", "--no-enable-prefix-caching"),
        (VLLM, "--enable-prefix-caching=true", "--enable-prefix-caching"),
        (VLLM, "--no-enable-prefix-caching=off", "--enable-prefix-caching"),
        (SGLANG, "--trust-remote-code=true", "--trust-remote-code"),
        (SGLANG, "--trust-remote-code=false", ""),
    ],
)
def test_a_switch_with_a_value_says_how_to_write_it(
    engine: EngineTable, word: str, instead: str
) -> None:
    (argument,) = parse_arguments([word], engine)
    hint = hint_for(argument, engine)
    assert argument.problem == "unwanted value"
    assert (hint.reason, hint.instead) == ("value", instead)


def test_an_ambiguous_abbreviation_lists_what_it_could_mean() -> None:
    (argument,) = parse_arguments(["--cuda-graph-max-bs", "8"], SGLANG)
    assert argument.values == ("8",)
    assert (
        "--cuda-graph-max-bs-decode or --cuda-graph-max-bs-prefill"
        in hint_for(argument, SGLANG).text
    )


def test_the_counterparts_are_flags() -> None:
    assert all(name in VLLM.by_spelling for name in COUNTERPARTS)
    assert all(name in SGLANG.by_spelling for name in COUNTERPARTS.values())
    assert not any(name in SGLANG.by_spelling for name in COUNTERPARTS)


def real_parser(engine: EngineTable) -> argparse.ArgumentParser:
    """An argparse parser with the flags of a table, values as texts."""
    parser = argparse.ArgumentParser(add_help=False)
    for flag in {id(flag): flag for flag in engine.by_spelling.values()}.values():
        if flag.is_switch:
            parser.add_argument(*flag.spellings, dest=flag.flag, action="append_const", const=())
        else:
            nargs = "+" if flag.nargs is None else flag.nargs
            parser.add_argument(
                *flag.spellings,
                dest=flag.flag,
                action="append",
                nargs=1 if flag.nargs is None else nargs,
            )
    return parser


SGLANG_PARSER = real_parser(SGLANG)
SPELLINGS = sorted(SGLANG.by_spelling)
WORDS = st.one_of(
    st.sampled_from(SPELLINGS),
    st.sampled_from(SPELLINGS).map(lambda name: name[: 2 + len(name) // 2]),
    st.sampled_from(SPELLINGS).map(lambda name: f"{name}=1"),
    st.sampled_from(["1", "-1", "-1.5", "", "a b", "-a b", "x=y", "-", "--zzz", "-z", "{}"]),
    st.text(max_size=6),
)


@given(args=st.lists(WORDS, max_size=8).filter(lambda args: "--" not in args))
def test_the_reading_agrees_with_argparse(args: list[str]) -> None:
    ours = parse_arguments(args, SGLANG)
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            namespace, rest = SGLANG_PARSER.parse_known_args(args)
    except SystemExit:
        assert any(each.problem in ("ambiguous", "no value", "unwanted value") for each in ours)
        return
    assert bool(rest) == any(each.problem for each in ours)
    if not rest:
        values: dict[str, list[tuple[str, ...]]] = {}
        for each in ours:
            assert each.flag is not None
            values.setdefault(each.flag.flag, []).append(each.values)
        theirs = {name: found for name, found in vars(namespace).items() if found is not None}
        assert values == {name: [plain(value) for value in found] for name, found in theirs.items()}


def plain(value: Any) -> tuple[str, ...]:
    """A `?` flag appends its text bare, and None where none was given."""
    if isinstance(value, str):
        return (value,)
    return tuple(value or ())


@given(args=st.lists(st.text(max_size=12), max_size=10), engine=st.sampled_from([SGLANG, VLLM]))
def test_any_words_are_read_to_the_end(args: list[str], engine: EngineTable) -> None:
    found = parse_arguments(args, engine, words=1)
    ends = [each.end for each in found]
    assert [each.position for each in found] == [0, *ends][: len(found)]
    assert (ends[-1] if ends else 0) == len(args)
    for each in found:
        assert hint_for(each, engine) is not None
