"""Numbers that readers of YAML disagree about."""

from __future__ import annotations

import pytest
import yaml

from kimi_serve.launcher.sources.profile import read_profile_text
from kimi_serve.schemas.findings import Finding

UNTAKEN = {
    "0o17": "15", "0b101": "5", "1_000": "1000", "0x1_F": "31", "-0x1F": "-31", "1e3": "1000",
    "1.5e3": "1500", "1.5e+3": "1500", "010": None, "08": None, "1:20": None, "1_0:20": None,
}  # fmt: skip


def read(text: str) -> tuple[tuple[Finding, ...], dict[str, object]]:
    (layer,) = read_profile_text(text, "p.yaml", "/", None)
    return layer.findings, {leaf.path: leaf.value for leaf in layer.leaves}


@pytest.mark.parametrize(("written", "decimal"), UNTAKEN.items())
def test_a_whole_number_is_not_guessed(written: str, decimal: str | None) -> None:
    (finding,), values = read(f"image:\n  max_pixels: {written}\n")
    assert (finding.rule, finding.severity) == ("KS005", "error")
    assert values == {}
    assert (finding.fix.edits[0].text if finding.fix else None) == decimal
    if decimal:
        assert finding.help == f"write {decimal}"


@pytest.mark.parametrize(
    ("path", "written", "decimal", "value"),
    [
        ("server.port", "0x1F", "31", 31),
        ("media.timeout_s", "0x1F", "31", 31.0),
        ("media.timeout_s", "1e3", "1000", 1000.0),
        ("media.timeout_s", "25e-1", "2.5", 2.5),
        ("gpu.mem_fraction_static", "1e-1", "0.1", 0.1),
    ],
)
def test_what_yaml_is_plain_about_is_taken(
    path: str, written: str, decimal: str, value: float
) -> None:
    section, _, name = path.partition(".")
    (finding,), values = read(f"{section}: {{{name}: {written}}}\n")
    assert (finding.rule, finding.severity) == ("KS005", "warning")
    assert values == {path: value}
    assert finding.fix is not None
    mended = f"{section}: {{{name}: {finding.fix.edits[0].text}}}\n"
    assert read(mended) == ((), {path: value})
    assert yaml.safe_load(mended) == {section: {name: value}}


@pytest.mark.parametrize("written", ["31", "-0", "+5", "0"])
def test_plain_digits_are_no_finding(written: str) -> None:
    assert not any(found.rule == "KS005" for found in read(f"server: {{port: {written}}}")[0])


@pytest.mark.parametrize("written", ["1.5", "1e-3", "0X1F", "0b2", "0o8", "1e999", "0x" + "f" * 50])
def test_what_is_no_whole_number_is_ks104(written: str) -> None:
    (finding,), _ = read(f"server: {{port: {written}}}")
    assert finding.rule == "KS104"


@pytest.mark.parametrize("written", ["0o17", "0b101", "1_000", "0x1F", "1e3", "010", "-0x1F"])
def test_none_of_them_is_text(written: str) -> None:
    (finding,), values = read(f"engine: {{version: {written}}}")
    assert (finding.rule, finding.severity, values) == ("KS005", "error", {})
