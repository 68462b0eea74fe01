"""How the programs in this folder talk: one JSON text in, one out, the engine's noise to stderr."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import sys
from collections.abc import Generator, Mapping
from typing import Any


@contextlib.contextmanager
def exchange() -> Generator[tuple[Any, list[Any]]]:
    """Give the request and the list of answers, which is written at the end."""
    request = json.load(sys.stdin)
    answers: list[Any] = []
    sys.stdout.flush()
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as out:
        os.dup2(2, 1)  # an engine, or a library of it, may print
        yield request, answers
        json.dump(answers, out)


@contextlib.contextmanager
def environment(variables: Mapping[str, str]) -> Generator[None]:
    """Have these variables besides those of the start, and nothing that was set meanwhile."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def plain(value: Any) -> Any:
    """Give a value as JSON has it, what JSON has not as text."""
    return json.loads(json.dumps(value, default=str))


def last_line(text: str) -> str:
    """Give what a parser said last: the error, below the usage."""
    return text.strip().rpartition("\n")[2]


def package_file(package: str, path: str) -> str:
    """Find a file of an installed package without importing it."""
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.submodule_search_locations
    return os.path.join(spec.submodule_search_locations[0], path)
