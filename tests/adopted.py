"""Adopts commands in tests, and compares what they say with what the plan of the profile says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from plan_factories import NO_GPU, make_checkpoint

from kimi_serve.launcher.adopt.adoption import Adoption, adopt
from kimi_serve.launcher.adopt.find import find_in_text, find_in_words
from kimi_serve.launcher.adopt.words import Told
from kimi_serve.launcher.engine_command import EngineArgument, find_command, parse_arguments
from kimi_serve.launcher.resolver.resolve import resolve
from kimi_serve.launcher.sources.load import Layers, merge
from kimi_serve.launcher.sources.profile import read_profile_text
from kimi_serve.schemas.checkpoint import CheckpointFacts
from kimi_serve.schemas.engine_facts import EngineTable, engine_table
from kimi_serve.schemas.plan import LaunchPlan, LoadedSettings
from kimi_serve.schemas.support import load_support

# What a plan says although nobody asked: the defaults of kimi-serve, and what a switch leaves out.
ADDED = {
    "sglang": {
        "--host": ("127.0.0.1",),
        "--port": ("30000",),
        "--tokenizer-worker-num": ("1",),
        "--mm-feature-transport": ("cpu",),
        "--mm-processor-worker-num": ("2",),
        "--mm-io-worker-num": ("16",),
    },
    "vllm": {
        "--host": ("0.0.0.0",),
        "--port": ("8000",),
        "--api-server-count": ("1",),
        "--shutdown-timeout": ("0",),
        "--headless": (),
        "--master-addr": ("127.0.0.1",),
        "--master-port": ("29501",),
    },
}


def adopt_words(*words: str) -> Adoption:
    told = Told()
    return adopt(find_in_words(words, told), told)


def adopt_text(text: str) -> Adoption:
    told = Told()
    return adopt(find_in_text(text, told), told)


def load(adoption: Adoption, env: Mapping[str, str] | None = None) -> LoadedSettings:
    """Read the profile as `serve` does; its secrets are in the environment."""
    whole = {**adoption.exports, **(env or {})}
    return merge(Layers(read_profile_text(adoption.text, "p.yaml", "/deploy", whole)))


def plan_of(
    adoption: Adoption,
    env: Mapping[str, str] | None = None,
    checkpoint: CheckpointFacts | None = None,
) -> LaunchPlan:
    whole = {**adoption.exports, **(env or {})}
    loaded = load(adoption, env)
    return resolve(loaded, checkpoint or make_checkpoint(), NO_GPU, load_support(), whole)


def meaning(argv: Sequence[str]) -> dict[str, tuple[Any, ...]]:
    """Give what a command says: the values of each flag, of several that count the last."""
    words = list(argv)
    if "vllm.entrypoints.cli.main" in words:
        index = words.index("vllm.entrypoints.cli.main")
        words[index - 1 : index + 2] = ["vllm", "serve"]
    command = find_command(words)
    assert command is not None
    table = engine_table(command.engine)
    assert table is not None
    takes = 1 if "serve" in words[: command.start] else command.words
    said: dict[str, tuple[Any, ...]] = {}
    for argument in parse_arguments(words[command.start :], table, words=takes):
        name = _name(argument, table)
        if argument.key:
            said[name] = (*said.get(name, ()), argument.key, *argument.values)
        elif argument.problem and argument.problem != "no value":
            said[name] = (*said.get(name, ()), *argument.values)
        else:
            said[name] = _values(argument)
    return said


def _name(argument: EngineArgument, table: EngineTable) -> str:
    if not argument.spelling:
        return "a loose word" if argument.problem else "model"
    if argument.flag is None:
        return argument.spelling
    flag = argument.flag
    successor = flag.deprecated.partition("=")[0]
    if flag.is_switch and successor in table.by_spelling:
        return successor
    return {"--model": "model", "--model-path": "model"}.get(flag.flag, flag.flag)


def _values(argument: EngineArgument) -> tuple[Any, ...]:
    flag = argument.flag
    if flag is None or argument.problem:
        return argument.values
    if flag.is_switch:
        _, equals, value = flag.deprecated.partition("=")
        return (value,) if equals and value.isidentifier() else (not argument.negated,)
    if flag.type in ("int", "float"):
        return tuple(_number(text) for text in argument.values)
    return argument.values


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def normal(said: Mapping[str, tuple[Any, ...]]) -> dict[str, tuple[Any, ...]]:
    return {
        name: tuple(_number(value) if isinstance(value, str) else value for value in values)
        for name, values in said.items()
    }


def assert_same(before: Sequence[str], plan: LaunchPlan) -> None:
    """Hold what the plan starts to what the command said."""
    launch = plan.launch
    assert launch is not None
    said, says = normal(meaning(before)), normal(meaning(launch.argv()))
    variables = {each.name: each.value for each in launch.variables}
    if launch.engine == "vllm" and "--api-key" in said and "VLLM_API_KEY" in variables:
        assert said.pop("--api-key") == (variables["VLLM_API_KEY"],)
    added = normal(ADDED[launch.engine])
    for name in says.keys() - said.keys():
        assert name in added, name
        if launch.engine == "sglang" or name in (
            *("--host", "--port", "--api-server-count", "--shutdown-timeout"),
        ):
            assert says[name] == added[name]
    for name, values in said.items():
        assert says.get(name, _default(launch.engine, name)) == values, name


def _default(engine: str, name: str) -> tuple[Any, ...]:
    """What a switch says that is left out, where its default is known."""
    table = engine_table(engine)
    flag = None if table is None else table.by_spelling.get(name)
    return (False,) if flag is not None and flag.is_switch and flag.default is False else ()
