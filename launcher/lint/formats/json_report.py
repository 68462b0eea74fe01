"""Our own JSON, as `schemas/lint-report.schema.json` describes it; minor versions add fields."""

from __future__ import annotations

import json
from typing import Any, Final

from kimi_serve.schemas.findings import Fix
from kimi_serve.schemas.provenance import Origin
from kimi_serve.schemas.rules import RULES

from ...version import VERSION
from ..report import Report, Reported
from ..source_text import SourceText

FORMAT_VERSION: Final = "1.0"
_KINDS = {
    "profile": "yaml",
    "env": "env",
    "engine-env": "env",
    "env-file": "env",
    "flag": "cli",
    "default": "default",
}


def json_report(report: Report) -> str:
    """Give the whole report as one document."""
    document = {
        "format_version": FORMAT_VERSION,
        "tool": {"name": "kimi-serve", "version": VERSION},
        "files": list(report.files),
        "findings": [_finding(item, report) for item in report.reported],
        "errors": [{"message": error} for error in report.errors],
        "summary": {
            "errors": report.count("error"),
            "warnings": report.count("warning"),
            "infos": report.count("info"),
            "by_rule": report.by_rule(),
            "baseline_vanished": report.num_vanished,
            "exit_code": report.exit_code,
        },
    }
    return json.dumps(document, indent=2) + "\n"


def _finding(item: Reported, report: Report) -> dict[str, Any]:
    finding = item.finding
    return {
        "id": finding.rule,
        "name": RULES[finding.rule].name,
        "severity": finding.severity,
        "message": finding.message,
        "path": finding.path or None,
        "profile": item.profile,
        "origin": _origin(finding.origin, report),
        "related": [_origin(other, report) for other in finding.related],
        "help": finding.help,
        "url": f"docs/rules/{finding.rule}.md",
        "fix": _fix(finding.fix) if finding.fix else None,
        "fingerprint": item.fingerprint,
    }


def _origin(origin: Origin, report: Report) -> dict[str, Any]:
    is_in_file = origin.line is not None
    return {
        "kind": _KINDS[origin.kind],
        "name": _variable(origin, report.sources.get(origin.name)),
        "file": origin.name if is_in_file or origin.kind == "profile" else None,
        "line": origin.line,
        "column": origin.column,
        "end_line": origin.line,
        "end_column": origin.end_column,
    }


def _variable(origin: Origin, source: SourceText | None) -> str | None:
    """Name the variable or flag, also one that stands in an env file."""
    if origin.kind == "env-file" and source and origin.line and origin.column:
        name = source.piece(origin.line, origin.column, origin.end_column or origin.column)
        return source.known.hide(name)
    return origin.name if origin.kind in ("env", "engine-env", "flag") else None


def _fix(fix: Fix) -> dict[str, Any]:
    return {
        "applicability": fix.applicability,
        "edits": [
            {
                "file": edit.file,
                "line": edit.line,
                "column": edit.column,
                "end_column": edit.end_column,
                "text": edit.text,
            }
            for edit in fix.edits
        ],
    }
