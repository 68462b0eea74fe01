"""Every rule says what its cases expect, where they expect it, and is quiet where it must be."""

from __future__ import annotations

from pathlib import Path

import pytest
from rule_runner import PROFILE, Case, all_cases, lint_in, matches, run_case

from kimi_serve.schemas.findings import Edit, Finding


@pytest.mark.parametrize("case", all_cases("fail"), ids=str)
def test_a_failing_case_is_found(case: Case, tmp_path: Path) -> None:
    found = run_case(case, tmp_path)
    concerned = {expected["rule"] for expected in case.expect}
    told = [finding for finding in found if case.only or finding.rule in concerned]
    shown = "\n".join(map(str, found)) or "nothing"
    assert len(told) == len(case.expect), shown
    for expected in case.expect:
        assert any(matches(finding, expected) for finding in told), shown
    assert case.rule in concerned


@pytest.mark.parametrize("case", all_cases("pass"), ids=str)
def test_a_passing_case_is_left_alone(case: Case, tmp_path: Path) -> None:
    told = [finding for finding in run_case(case, tmp_path) if finding.rule == case.rule]
    assert not told, "\n".join(map(str, told))


@pytest.mark.parametrize("case", all_cases("fail"), ids=str)
def test_each_fix_mends_what_it_is_for(case: Case, tmp_path: Path) -> None:
    for finding in run_case(case, tmp_path):
        if finding.fix is None or finding.rule != case.rule or finding.fix.edits[0].file != PROFILE:
            continue
        mended = _applied(case.profile, finding.fix.edits)
        assert mended != case.profile
        again = lint_in(tmp_path, mended, case.env, case.files, check_host=case.check_host)
        shown = f"{mended}\n" + "\n".join(map(str, again))
        assert len(_like(finding, again)) < len(_like(finding, run_case(case, tmp_path))), shown
        assert not [each for each in again if each.rule == "KS001"], shown


def _like(finding: Finding, found: tuple[Finding, ...]) -> list[Finding]:
    return [each for each in found if each.rule == finding.rule]


def _applied(text: str, edits: tuple[Edit, ...]) -> str:
    lines = text.splitlines(keepends=True)
    for edit in sorted(edits, key=lambda edit: (edit.line, edit.column), reverse=True):
        line = lines[edit.line - 1]
        before, behind = line[: edit.column - 1], line[edit.end_column - 1 :]
        lines[edit.line - 1] = before + edit.text + behind
    return "".join(lines)
