"""A rule is whole: a page whose example fails and whose fix passes, and cases of both kinds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from rule_runner import CASES, blocks, lint_section, read_cases

from kimi_serve.schemas.rule_pages import HEADINGS, page, section
from kimi_serve.schemas.rules import RULES

ROOT = Path(__file__).parents[2]
FOLDERS = ("launcher", "preprocess", "schemas")
SOURCES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize("rule", RULES)
def test_the_page_has_title_summary_and_all_headings(rule: str) -> None:
    text = page(rule)
    lines = text.splitlines()
    assert lines[0] == f"# {rule} {RULES[rule].name}"
    assert lines[1] == ""
    assert lines[2].endswith(".")
    assert lines[3] == ""
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == list(HEADINGS)
    assert all(section(rule, heading) for heading in HEADINGS)
    assert len(lines) <= 60


@pytest.mark.parametrize("rule", RULES)
def test_the_example_fails_as_the_page_says(rule: str, tmp_path: Path) -> None:
    example = section(rule, "Example")
    found = [str(each) for each in lint_section(example, tmp_path) if each.rule == rule]
    assert found
    said = [block.text for block in blocks(example) if block.language == "text"]
    assert said == ["".join(f"{line}\n" for line in found)]


@pytest.mark.parametrize("rule", RULES)
def test_the_fix_passes(rule: str, tmp_path: Path) -> None:
    fix = section(rule, "Fix")
    assert any(block.language in ("yaml", "env", "console") for block in blocks(fix))
    found = lint_section(fix, tmp_path)
    assert not [str(each) for each in found if each.rule == rule or each.severity != "info"]


@pytest.mark.parametrize("rule", RULES)
def test_there_are_cases_of_both_kinds(rule: str) -> None:
    path = CASES / f"{rule}.toml"
    assert read_cases(path, "fail")
    assert read_cases(path, "pass")


def test_no_page_and_no_case_is_left_over() -> None:
    assert {path.stem for path in (ROOT / "docs" / "rules").glob("*.md")} == set(RULES)
    assert {path.stem for path in CASES.iterdir()} == set(RULES)


def test_no_finding_uses_an_id_that_is_not_in_the_catalogue() -> None:
    used = {
        (path.name, rule)
        for path in SOURCES
        for rule in re.findall(r"\bKS\d{3}\b", path.read_text(encoding="utf-8"))
    }
    assert {rule for _, rule in used} <= set(RULES), used
