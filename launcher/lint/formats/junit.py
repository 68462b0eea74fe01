"""JUnit XML: a suite a file, a failing case a finding, one passing case where there is none."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

from ..report import Report, Reported, help_of

# What XML 1.0 has no way to write.
_FORBIDDEN = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(report: Report) -> str:
    """Give all suites; what made the run fail is a suite of its own, with errors."""
    root = ElementTree.Element("testsuites", name="kimi-serve lint")
    by_file: dict[str, list[Reported]] = {name: [] for name in report.files}
    for item in report.reported:
        by_file.setdefault(item.file or item.profile, []).append(item)
    for name, items in by_file.items():
        _suite(root, name, items)
    if report.errors:
        suite = _element(root, "testsuite", name="kimi-serve lint", errors=len(report.errors))
        suite.set("tests", str(len(report.errors)))
        suite.set("failures", "0")
        for error in report.errors:
            case = _element(suite, "testcase", classname="kimi-serve", name="run", time="0")
            _element(case, "error", message=error, type="error")
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'


def _suite(root: ElementTree.Element, name: str, items: list[Reported]) -> None:
    suite = _element(root, "testsuite", name=name, tests=max(1, len(items)))
    suite.set("failures", str(len(items)))
    suite.set("errors", "0")
    if not items:
        _element(suite, "testcase", classname=name, name="no findings", time="0")
    for item in items:
        finding = item.finding
        subject = f"{finding.rule} {finding.path or finding.origin}"
        case = _element(suite, "testcase", classname=name, name=subject, time="0")
        kind = f"{finding.severity} {finding.rule}"
        failure = _element(case, "failure", message=finding.message, type=kind)
        help = f"\nhelp: {help_of(finding)}" if help_of(finding) else ""
        failure.text = _clean(f"{finding}{help}")


def _element(parent: ElementTree.Element, tag: str, **attributes: object) -> ElementTree.Element:
    written = {name: _clean(str(value)) for name, value in attributes.items()}
    return ElementTree.SubElement(parent, tag, written)


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("\ufffd", text)
