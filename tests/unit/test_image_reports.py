"""docs/image-reports.md has every row of the log, and every test that it names is there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = {
    match[1]: match[2]
    for match in re.finditer(
        r"^\| (A\d\d) \|(.*)\|$",
        (ROOT / "docs" / "image-reports.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
}


@cache
def names_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_row_is_there_in_order() -> None:
    assert list(ROWS) == [f"A{number:02}" for number in range(1, 77)]


@pytest.mark.parametrize("row", ROWS)
def test_every_row_names_tests_that_exist(row: str) -> None:
    _, what, tests, *rest = ROWS[row].split(" | ")
    assert what
    assert not rest
    named = re.findall(r"`([^`]+)`", tests)
    assert named
    for node in named:
        path, _, name = node.partition("::")
        assert name in names_in(ROOT / path), node
