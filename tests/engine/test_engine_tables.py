"""The committed tables are what the engines' packages say today.

Name a wheel or an installed package directory in KIMI_SERVE_TEST_SGLANG or KIMI_SERVE_TEST_VLLM;
without them the package of the running Python is read, if it has one. Nothing is imported.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import engine_tables
import pytest
from engine_reading.package import open_package

from kimi_serve.schemas.engine_facts import checked_versions


def package_path(engine: str) -> Path:
    """Find the package to compare with, or skip with the reason."""
    variable = f"KIMI_SERVE_TEST_{engine.upper()}"
    named = os.environ.get(variable)
    if named:
        return Path(named)
    spec = find_spec(engine)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"{variable} names no wheel, and {engine} is not installed")
    path = Path(spec.submodule_search_locations[0])
    version = open_package(path).version
    if version not in checked_versions(engine):
        pytest.skip(f"the installed {engine} {version} has no table, and {variable} is not set")
    return path


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_the_committed_table_is_what_the_package_says(
    engine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = package_path(engine)
    code = engine_tables.main([str(path), "--check"])
    shown = capsys.readouterr()
    assert code == 0, shown.out + shown.err + "run scripts/engine_tables.py --write"
