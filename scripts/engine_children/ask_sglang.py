"""What SGLang makes of command lines: run by an interpreter that has SGLang, without a GPU.

Standard input: {"commands": [{"words": [...], "env": {...}}], "fields": [...]}, where `words` stand
behind `sglang.launch_server` and `env` is what the engine would find besides PATH and its like.
Standard output: a list with one answer a command. `given` are the parsed fields that differ from
their defaults, `resolved` those fields and `fields` after SGLang's own resolution and checks,
`variables` what its registry reads; `error` is what it said when it refused, else "".

Nothing is stubbed. The one thing added is `--device cuda`: without it SGLang stops where it finds
no accelerator.
"""

from __future__ import annotations

import contextlib
import importlib
import io
from collections.abc import Mapping, Sequence
from typing import Any

from engine_variables import read_variables
from exchange import environment, exchange, last_line, package_file, plain

_DEVICE = ("--device", "cuda")


def main() -> None:
    with exchange() as (request, answers):
        server_args = importlib.import_module("sglang.srt.server_args")
        registry = package_file("sglang", "srt/environ.py")
        for command in request["commands"]:
            with environment(command["env"]):
                answer = understand(server_args, command["words"], request["fields"])
            answers.append(answer | {"variables": read_variables(registry, command["env"])})


def understand(server_args: Any, words: Sequence[str], fields: Sequence[str]) -> dict[str, Any]:
    """Parse, resolve and check one command, as `sglang.launch_server` and its engine do."""
    answer: dict[str, Any] = {"given": {}, "resolved": {}, "error": ""}
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            record = server_args.prepare_server_args([*_DEVICE, *words])
        answer["given"] = given(record)
        record.resolve_once()
        record.check_server_args()
        resolved: Mapping[str, Any] = record.resolved_dict()
        names = sorted({*fields, *answer["given"]} & set(resolved))
        answer["resolved"] = {name: plain(resolved[name]) for name in names}
    except SystemExit as end:
        answer["error"] = f"exit {end.code}: {last_line(said.getvalue())}"
    except Exception as error:  # noqa: BLE001 - whatever the engine raises is its answer
        answer["error"] = f"{type(error).__name__}: {error}"
    return answer


def given(record: Any) -> dict[str, Any]:
    """Give what the command line says that is not the default anyway."""
    plain_record = type(record)(model_path="")
    names = [name for name in record.__struct_fields__ if name not in ("device", "model_path")]
    found = {
        name: plain(getattr(record, name))
        for name in names
        if getattr(record, name) != getattr(plain_record, name)
    }
    return {"model_path": record.model_path} | found


if __name__ == "__main__":
    main()
