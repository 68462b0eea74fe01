"""docs/reliability.md has every row of tables B and C, and every test that it names is there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
ROWS = {
    match[1]: match[2] for match in re.finditer(r"^\| ([BC]\d\d) \|(.*)\|$", PAGE, re.MULTILINE)
}


@cache
def names_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {
        node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def test_every_row_is_there_in_order() -> None:
    placeholders = [f"B{number:02}" for number in range(1, 16)]
    processes = [f"C{number:02}" for number in range(1, 32)]
    assert list(ROWS) == placeholders + processes


@pytest.mark.parametrize("row", ROWS)
def test_every_row_names_tests_that_exist(row: str) -> None:
    _, what, tests = ROWS[row].split(" | ")
    assert what
    named = re.findall(r"`([^`]+)`", tests)
    assert named or "no goal" in what
    for node in named:
        path, _, name = node.partition("::")
        assert name in names_in(ROOT / "tests" / path), node
