"""GitHub workflow commands: annotations on a pull request, errors first."""

from __future__ import annotations

import re

from kimi_serve.schemas.findings import Severity

from ...sources.characters import printable
from ..report import Report, Reported, help_of

_BREAKS = re.compile(r"([\r\n])")
_COMMANDS: dict[Severity, str] = {"error": "error", "warning": "warning", "info": "notice"}


def github(report: Report) -> str:
    """Give one command a finding; GitHub shows about ten errors and ten warnings of a step."""
    order = list(_COMMANDS)
    items = sorted(report.reported, key=lambda item: order.index(item.finding.severity))
    lines = [_annotation(item, report) for item in items]
    lines += [f"::error title=kimi-serve::{_data(error)}" for error in report.errors]
    return "".join(f"{line}\n" for line in lines)


def _annotation(item: Reported, report: Report) -> str:
    finding, origin = item.finding, item.finding.origin
    properties: dict[str, object] = {}
    if item.file is not None and origin.line is not None:
        name = report.names.get(item.file, item.file)
        properties = {"file": name, "line": origin.line, "endLine": origin.line}
        if origin.column is not None:
            properties["col"] = origin.column
            properties["endColumn"] = origin.end_column or origin.column
    properties["title"] = f"kimi-serve ({finding.rule})"
    message = finding.message if item.file is not None else f"{origin}: {finding.message}"
    help = help_of(finding)
    text = f"{message}\nhelp: {help}" if help else message
    written = ",".join(f"{name}={_property(str(value))}" for name, value in properties.items())
    return f"::{_COMMANDS[finding.severity]} {written}::{_data(text)}"


def _data(text: str) -> str:
    text = "".join(part if part in "\r\n" else printable(part) for part in _BREAKS.split(text))
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
