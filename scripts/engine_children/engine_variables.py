"""What an engine's own registry makes of its variables: the file is read by path, on its own.

As a program: standard input {"file": PATH, "environments": [{...}]}, standard output one answer
that has `names`, every name of the registry, and `read`, for each environment what `read_variables`
gives. Needs nothing but the file, `sglang/srt/environ.py` or `vllm/envs.py`.
"""

from __future__ import annotations

import importlib.util
import os
import warnings
from collections.abc import Mapping
from typing import Any

from exchange import environment, exchange, plain

_PREFIXES = ("SGLANG_", "SGL_", "VLLM_")


def main() -> None:
    with exchange() as (request, answers):
        file: str = request["file"]
        read = [read_variables(file, variables) for variables in request["environments"]]
        answers.append({"names": names_of(_load(file)), "read": read})


def read_variables(file: str, variables: Mapping[str, str]) -> dict[str, Any]:
    """Give what the engine reads for each of its variables, among them those that it renames.

    A variable that the registry does not have is left out. `warnings` are the registry's own.
    """
    with environment(variables), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        module = _load(file)
        known = {name for name in os.environ if name.startswith(_PREFIXES)} & set(names_of(module))
        values = {name: plain(_read(module, name)) for name in sorted(known)}
    return {"values": values, "warnings": sorted({str(each.message) for each in caught})}


def names_of(module: Any) -> list[str]:
    """Give every name that the registry knows."""
    if hasattr(module, "environment_variables"):
        return sorted(module.environment_variables)
    registry: Any = module.envs.__class__
    return sorted(name for name in dir(registry) if name.startswith(_PREFIXES))


def _read(module: Any, name: str) -> Any:
    if hasattr(module, "environment_variables"):
        return module.environment_variables[name]()
    return getattr(module.envs, name).get()


def _load(file: str) -> Any:
    """Run the file as it runs when the engine starts: it looks at the environment at once."""
    spec = importlib.util.spec_from_file_location("engine_registry", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main()
