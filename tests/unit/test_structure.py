"""Imports go one way: launcher -> preprocess -> schemas; the settings table has the docs."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ORDER = ("schemas", "preprocess", "launcher")
MODULES = sorted(path for folder in ORDER for path in (ROOT / folder).rglob("*.py"))


def imported_modules(path: Path) -> set[Path]:
    """Give the files of kimi_serve that a module imports, also late and for types."""
    found: set[Path] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {ROOT.joinpath(*alias.name.split(".")[1:]) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parts = (node.module or "").split(".") if node.module else []
            home = path.parents[node.level - 1] if node.level else ROOT
            place = home.joinpath(*(parts if node.level else parts[1:]))
            found |= {place, *(place / alias.name for alias in node.names)}
    return {place.with_suffix(".py") for place in found} & set(MODULES)


def imported_folders(path: Path) -> set[str]:
    """Name the top-level folders of kimi_serve that a module imports absolutely."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module or ""]
        found |= {name.split(".")[1] for name in names if name.startswith("kimi_serve.")}
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_one_way_and_are_relative_inside(path: Path) -> None:
    own = path.relative_to(ROOT).parts[0]
    below = set(ORDER[: ORDER.index(own)])
    assert imported_folders(path) <= below


def test_no_imports_run_in_a_circle() -> None:
    TopologicalSorter({path: imported_modules(path) for path in MODULES}).prepare()


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_stay_small(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= 400
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            assert node.end_lineno - node.lineno < 60, node.name
