"""What was written as one shell line becomes the list that was meant."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_serve.launcher.sources.shell_words import is_several, replace_fix, split_words
from kimi_serve.schemas.provenance import Origin


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("--tp 8 --host 0.0.0.0", ["--tp", "8", "--host", "0.0.0.0"]),
        ('--c {"image": {"max": 1}} --x', ["--c", '{"image": {"max": 1}}', "--x"]),
        ("--c '{\"a\": [1, 2]}'", ["--c", '{"a": [1, 2]}']),
        ('--name "my model"', ["--name", "my model"]),
        ('--c {"it\'s": "a } b"} --x', ["--c", '{"it\'s": "a } b"}', "--x"]),
        ("  ", []),
    ],
)
def test_words_are_split_outside_of_quotes_and_json(text: str, words: list[str]) -> None:
    assert split_words(text) == words


@given(st.text())
def test_splitting_never_fails_and_loses_only_blanks_and_quotes(text: str) -> None:
    def kept(whole: str) -> str:
        return "".join(each for each in whole if not each.isspace() and each not in "'\"")

    assert kept("".join(split_words(text))) == kept(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("--host 0.0.0.0", True),
        ("-q 8", True),
        ("--a=1 --b=2", True),
        ("--name", False),
        ("my model", False),
        ('{"a": 1}', False),
    ],
)
def test_several_arguments_start_with_a_flag(text: str, expected: bool) -> None:
    assert is_several(text) is expected


def test_only_whole_words_of_a_file_are_replaced() -> None:
    place = Origin("profile", "p.yaml", 1, 3, 8)
    fix = replace_fix(place, "abc", json.dumps("x"), "safe")
    assert fix is not None
    assert fix.edits[0].text == '"x"'
    assert replace_fix(place, "a much longer text", "x", "safe") is None
    assert replace_fix(Origin("env", "NAME"), "abc", "x", "safe") is None
    assert replace_fix(Origin("profile", "p.yaml"), "abc", "x", "safe") is None
