"""Ignore comments: what they hide, what is said about them, where a `#` is no comment."""

from __future__ import annotations

from pathlib import Path

import pytest

from kimi_serve.launcher.lint.mend import apply_fixes
from kimi_serve.launcher.lint.run import lint_profile
from kimi_serve.launcher.lint.source_text import SourceText


def rules(text: str) -> list[str]:
    """Give rule and line of each finding about a file."""
    found = lint_profile(text.encode(), name="p.yaml", folder=Path("/deploy")).findings
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


@pytest.mark.parametrize(
    "comment",
    [
        "# kimi-serve: ignore[ks101] known",
        "# Kimi-Serve: Ignore[KS101] known",
        "# noqa: E501 # kimi-serve: ignore[KS101] known",
        "# kimi-serve: ignore[KS101] known # noqa",
    ],
)
def test_case_and_other_comments_do_not_matter(comment: str) -> None:
    assert rules(f"log: {{levl: info}} {comment}\n") == []
    assert rules(f"{comment.replace('ignore', 'ignore-file')}\nlog: {{levl: info}}\n") == []


@pytest.mark.parametrize(
    "comment",
    [
        "# kimi-serve: ignoree[KS101] known",
        "# kimi-serve: ignore [KS101] known",
        "# kimi-serve: ignore KS101 known",
        "# kimi-serve ignore[KS101] known",
        "# kimi_serve: ignore[KS101] known",
        "# kimi-serve: ignored[KS101] known",
        "# kimi-serve: ignore_file[KS101] known",
        "# kimi-serve: noqa[KS101] known",
        "# x # kimi-serve: disable=KS101",
    ],
)
def test_a_misspelt_one_is_a_warning(comment: str) -> None:
    text = f"log: {{levl: info}} {comment}\n"
    found = lint_profile(text.encode(), name="p.yaml", folder=Path("/deploy")).findings
    placed = [(item.rule, item.severity) for item in found if item.origin.line]
    assert sorted(placed) == [("KS007", "warning"), ("KS101", "error")]


@pytest.mark.parametrize(
    "comment", ["# for kimi-serve: two GPUs", "# kimi-serve: see the wiki", "# kimi-serve"]
)
def test_other_comments_about_us_are_left_alone(comment: str) -> None:
    assert rules(f"log: {{level: info}} {comment}\n") == []


@pytest.mark.parametrize(
    ("comments", "left"),
    [
        ("# a # kimi-serve: ignore[KS201] x", "# a"),
        (
            "# kimi-serve: ignore[KS201] x # kimi-serve: ignore[KS101] y",
            "# kimi-serve: ignore[KS101] y",
        ),
    ],
)
def test_removing_one_leaves_the_others(comments: str, left: str) -> None:
    linted = lint_profile(
        f"log: {{levl: 1}} {comments}\n".encode(), name="p.yaml", folder=Path("/deploy")
    )
    (unused,) = [found for found in linted.written if found.rule == "KS007"]
    assert unused.fix is not None
    after = apply_fixes(f"log: {{levl: 1}} {comments}\n".encode(), [unused.fix])
    assert after.decode() == f"log: {{levl: 1}} {left}\n"
