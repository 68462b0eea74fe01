"""What stands where a reference to a secret belongs, and keys indented with pasted blanks."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr

from kimi_serve.launcher.sources.profile import read_profile_text
from kimi_serve.schemas.findings import Finding


def findings(text: str) -> tuple[Finding, ...]:
    return read_profile_text(text, "p.yaml", "/", None)[-1].findings


@pytest.mark.parametrize(
    ("written", "meant"),
    [("evn", "env"), ("ENV", "env"), ("fiel", "file"), ("variable", "env"), ("path", "file")],
)
def test_a_misspelt_reference(written: str, meant: str) -> None:
    (finding,) = findings(f"server:\n  api_key: {{{written}: K}}\n")
    assert finding.rule == "KS101"
    assert finding.message.endswith(f"`{written}` in `server.api_key`; did you mean `{meant}`?")
    assert finding.fix is not None
    assert finding.fix.applicability == "unsafe"
    assert finding.fix.edits[0].text == meant


@pytest.mark.parametrize("written", ['""', "''", '" "', "{}", "[]", "{env: }", '{file: ""}'])
def test_nothing_is_no_secret_in_a_file(written: str) -> None:
    (finding,) = findings(f"server:\n  api_key: {written}\n")
    assert finding.rule == "KS104"
    assert "write {env: NAME} or {file: PATH}" in (finding.help or "")


def test_null_is_no_key() -> None:
    assert findings("server:\n  api_key:\n") == ()


@pytest.mark.parametrize("written", ["hunter2", "{value: hunter2}", "{env: [hunter2]}", "[a]"])
def test_a_plain_secret(written: str) -> None:
    (finding,) = findings(f"server:\n  api_key: {written}\n")
    assert finding.rule == "KS505"
    assert "hunter2" not in f"{finding.message}{finding.help}"


@pytest.mark.parametrize("blank", ["\u00a0", "\u200b", "\u3000"])
@pytest.mark.parametrize("above", ["server:\n", "engine:\n  nodes:\n  "])
def test_a_pasted_indent_is_one_finding(above: str, blank: str) -> None:
    (finding,) = findings(f"{above}{blank} port: 3\n")
    assert finding.rule == "KS006"


def test_an_empty_section_above_another_is_still_one() -> None:
    assert [found.rule for found in findings("server:\nlog:\n")] == ["KS106", "KS106"]


@pytest.mark.parametrize("blanks", ["", "\n", "   \n", "\r\n", " \t\n\n", "\v\f"])
def test_a_file_of_blanks_is_an_empty_secret(tmp_path: Path, blanks: str) -> None:
    (tmp_path / "key").write_text(blanks, newline="")
    result = read_profile_text("server:\n  api_key: {file: key}\n", "p.yaml", str(tmp_path), {})
    (finding,) = result[-1].findings
    assert finding.rule == "KS104"
    assert finding.message.endswith("is empty")


@pytest.mark.parametrize(
    "written", ["abcdefgh", "abcdefgh \n", "\n  abcdefgh\t\r\n", "abcdefgh\n\n"]
)
def test_blanks_around_a_secret_of_a_file_are_not_its_own(tmp_path: Path, written: str) -> None:
    (tmp_path / "key").write_text(written, newline="")
    result = read_profile_text("server:\n  api_key: {file: key}\n", "p.yaml", str(tmp_path), {})
    assert result[-1].findings == ()
    (leaf,) = result[0].leaves
    assert isinstance(leaf.value, SecretStr)
    assert leaf.value.get_secret_value() == "abcdefgh"
