"""The nearest name: what difflib says, sooner."""

from __future__ import annotations

import difflib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_serve.launcher.sources.near import closest
from kimi_serve.schemas.engine_facts import engine_table

TABLE = engine_table("sglang")
assert TABLE is not None
FLAGS = [name.lstrip("-") for name in TABLE.by_spelling]
VARIABLES = [name.casefold() for name in TABLE.environment]


def difflib_says(word: str, known: list[str], cutoff: float) -> str | None:
    return next(iter(difflib.get_close_matches(word, known, n=1, cutoff=cutoff)), None)


@pytest.mark.parametrize(("known", "cutoff"), [(FLAGS, 0.75), (FLAGS, 0.6), (VARIABLES, 0.88)])
def test_misspelt_names_of_the_tables(known: list[str], cutoff: float) -> None:
    for name in known[::40]:
        middle = len(name) // 2
        swapped = name[: middle - 1] + name[middle] + name[middle - 1] + name[middle + 1 :]
        for word in (swapped, name[1:], name[:-2], f"x{name}", name[::-1]):
            assert closest(word, known, cutoff) == difflib_says(word, known, cutoff)


@given(
    word=st.text("abc_", max_size=8),
    known=st.lists(st.text("abc_", min_size=1, max_size=8), max_size=12),
    cutoff=st.sampled_from([0.5, 0.6, 0.75, 0.88, 1.0]),
)
def test_any_words(word: str, known: list[str], cutoff: float) -> None:
    assert closest(word, known, cutoff) == difflib_says(word, known, cutoff)
