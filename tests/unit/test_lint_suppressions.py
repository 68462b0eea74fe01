"""Ignore comments: what they hide, what is said about them, where a `#` is no comment."""

from __future__ import annotations

from pathlib import Path

import pytest

from kimi_serve.launcher.lint.run import lint_text
from kimi_serve.launcher.lint.source_text import SourceText


def rules(text: str) -> list[str]:
    """Give rule and line of each finding about a file."""
    found = lint_text(text.encode(), name="p.yaml", folder=Path("/deploy"))
    return [f"{item.rule}:{item.origin.line}" for item in found if item.origin.line]


MODEL = "model: {path: org/m, trust_remote_code: true, revision: main}\n"


def test_at_the_end_of_a_line_and_alone_above_it() -> None:
    bad = "log: {levl: info}"
    assert rules(f"{bad}\n") == ["KS101:1"]
    assert rules(f"{bad} # kimi-serve: ignore[KS101] known\n") == []
    assert rules(f"# kimi-serve: ignore[KS101] known\n# more\n\n{bad}\n") == []
    assert rules(f"{bad}\n# kimi-serve: ignore[KS101] too late\n") == ["KS101:1", "KS007:2"]


def test_the_whole_file() -> None:
    text = "log: {levl: info, x: 1}\nserver: {y: 1}\n# kimi-serve: ignore-file[KS101] legacy\n"
    assert rules(text) == []


def test_errors_of_unreadable_files_stay() -> None:
    text = "log: {level: info}\nlog: {level: info} # kimi-serve: ignore[KS003] no\n"
    assert "KS003:2" in rules(text)
    assert "KS007:2" in rules(text)


@pytest.mark.parametrize(
    "comment",
    ["ignore[KS101]", "ignore", "ignore[]", "ignore[KS999] reason", "ignore[KS201] reason"],
)
def test_missing_reasons_and_stale_ones_are_said(comment: str) -> None:
    assert "KS007:1" in rules(f"log: {{levl: info}} # kimi-serve: {comment}\n")


@pytest.mark.parametrize(
    "text",
    [
        'log: {level: "# kimi-serve: ignore[KS101] x"}\n',
        "log:\n  level: |\n    # kimi-serve: ignore[KS101] x\n",
        "log: {level: a#kimi-serve}\n",
    ],
)
def test_a_hash_inside_a_scalar_is_no_comment(text: str) -> None:
    assert SourceText.read(text.encode()).comments == ()


def test_comments_behind_scalars_are_found() -> None:
    text = 'a: "#x" # one\nb: | # two\n  # no\n# three\nc: d#e # four\n'
    comments = SourceText.read(text.encode()).comments
    assert comments is not None
    assert [comment.text for comment in comments] == ["# one", "# two", "# three", "# four"]
    assert [comment.is_alone for comment in comments] == [False, False, True, False]
