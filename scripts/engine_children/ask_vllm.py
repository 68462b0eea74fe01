"""What vLLM makes of command lines: run by an interpreter that has vLLM, without a GPU.

Standard input and output as in ask_sglang.py; `words` stand behind `vllm.entrypoints.cli.main`.
vLLM's own `main` runs whole: its parser, its checks and the decisions of `vllm serve`. `resolved`
are `fields` of the model's configuration, the engine arguments and the arguments that it makes.

Stubbed are the platform, which is the CPU as in `vllm bench` without an accelerator, and the four
functions that would start servers; which one was called is the answer's `started`. No compiled
module is replaced.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import sys
from collections.abc import Sequence
from typing import Any
from unittest import mock

from engine_variables import read_variables
from exchange import environment, exchange, last_line, package_file, plain

_STARTERS = ("run_server", "run_multi_api_server", "run_headless", "run_dp_supervisor")
# The parser's own notes, and the model that is the subject of every command.
_NOT_ARGUMENTS = ("subparser", "dispatch_function", "model_tag")


class Started(Exception):
    """A server would start now, with these arguments."""

    def __init__(self, name: str, arguments: argparse.Namespace) -> None:
        self.name = name
        self.arguments = arguments


def main() -> None:
    with exchange() as (request, answers):
        registry = package_file("vllm", "envs.py")
        # As `vllm bench` does where there is no accelerator.
        platforms: Any = importlib.import_module("vllm.platforms")
        cpu = importlib.import_module("vllm.platforms.cpu")
        platforms.current_platform = cpu.CpuPlatform()
        serve = importlib.import_module("vllm.entrypoints.cli.serve")
        cli = importlib.import_module("vllm.entrypoints.cli.main")
        with contextlib.ExitStack() as stack:
            for name in _STARTERS:
                stack.enter_context(mock.patch.object(serve, name, starter(name)))
            for command in request["commands"]:
                with environment(command["env"]):
                    answer = understand(cli, command["words"], request["fields"])
                answers.append(answer | {"variables": read_variables(registry, command["env"])})


def starter(name: str) -> Any:
    """Stand in for a function that starts servers."""

    def start(arguments: argparse.Namespace) -> None:
        if name == "run_server":
            arguments.api_server_count = 1  # `vllm serve` forgets the number where it is one
        raise Started(name, arguments)

    return start


def run(cli: Any, words: Sequence[str]) -> Started:
    """Run vLLM's `main` until it would start a server."""
    with mock.patch.object(sys, "argv", ["vllm", *words]):
        try:
            cli.main()
        except Started as started:
            return started
    message = "vLLM started nothing"
    raise RuntimeError(message)


def understand(cli: Any, words: Sequence[str], fields: Sequence[str]) -> dict[str, Any]:
    """Give what one command would start."""
    answer: dict[str, Any] = {"given": {}, "resolved": {}, "started": "", "error": ""}
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            # Some defaults are read from variables.
            defaults = vars(run(cli, ["serve"]).arguments) | {"api_server_count": None}
            started = run(cli, words)
        arguments = vars(started.arguments)
        answer["started"] = started.name
        answer["given"] = {
            name: plain(value)
            for name, value in sorted(arguments.items())
            if name not in _NOT_ARGUMENTS and value != defaults.get(name)
        }
        answer["resolved"] = resolved(started.arguments, fields)
    except SystemExit as end:
        answer["error"] = f"exit {end.code}: {last_line(said.getvalue())}"
    except Exception as error:  # noqa: BLE001 - whatever the engine raises is its answer
        answer["error"] = f"{type(error).__name__}: {error}"
    return answer


def resolved(arguments: argparse.Namespace, fields: Sequence[str]) -> dict[str, Any]:
    """Give `fields` as the engine has them, and what its image processor will be told."""
    arg_utils = importlib.import_module("vllm.engine.arg_utils")
    engine = arg_utils.AsyncEngineArgs.from_cli_args(arguments)
    media = engine.create_model_config().multimodal_config
    found = {
        "limit_of_vision_chunks": media.get_limit_per_prompt("vision_chunk"),
        "processor_device": media.get_mm_processor_device_type(),
    }
    for name in set(fields) - set(found):
        found[name] = getattr(engine if hasattr(engine, name) else arguments, name)
    return {name: plain(found[name]) for name in sorted(found)}


if __name__ == "__main__":
    main()
