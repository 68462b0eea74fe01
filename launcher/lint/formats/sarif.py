"""SARIF 2.1.0 as GitHub code scanning reads it."""

from __future__ import annotations

import json
import os
from pathlib import PurePath
from typing import Any, Final
from urllib.parse import quote

from kimi_serve.schemas.findings import Severity
from kimi_serve.schemas.provenance import Origin
from kimi_serve.schemas.rules import RULES, Rule

from ...version import VERSION
from ..report import Report, Reported, sentences
from ..rule_help import rule_description, rule_markdown

SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS: dict[Severity, str] = {"error": "error", "warning": "warning", "info": "note"}
_LONGEST = 1024
# GitHub calls 7.0 to 8.9 high; only the exposure rules are about security.
_SECURITY = {"KS501": "7.1", "KS503": "8.1", "KS504": "7.5", "KS505": "8.0", "KS506": "7.0"}


def sarif(report: Report) -> str:
    """Give one run; a failed one says so in its invocation."""
    ids = sorted({item.finding.rule for item in report.reported})
    run = {
        "tool": {
            "driver": {
                "name": "kimi-serve",
                "version": VERSION,
                "semanticVersion": VERSION,
                "rules": [_rule(RULES[id]) for id in ids],
            }
        },
        "columnKind": "unicodeCodePoints",
        "invocations": [_invocation(report)],
        "results": [
            _result(item, ids.index(item.finding.rule), report) for item in report.reported
        ],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _invocation(report: Report) -> dict[str, Any]:
    notes = [{"level": "error", "message": {"text": error}} for error in report.errors]
    invocation: dict[str, Any] = {
        "executionSuccessful": report.exit_code != 2,
        "exitCode": report.exit_code,
    }
    return invocation | ({"toolExecutionNotifications": notes} if notes else {})


def _rule(rule: Rule) -> dict[str, Any]:
    markdown = rule_markdown(rule)
    properties: dict[str, Any] = {"tags": ["configuration"], "precision": "high"}
    if rule.id.startswith("KS5"):
        properties["tags"].append("security")
        properties["security-severity"] = _SECURITY.get(rule.id, "5.0")
    return {
        "id": rule.id,
        "name": rule.name,
        "shortDescription": {"text": rule.summary},
        "fullDescription": {"text": rule_description(rule)[:_LONGEST]},
        "help": {"text": markdown, "markdown": markdown},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
        "properties": properties,
    }


def _result(item: Reported, index: int, report: Report) -> dict[str, Any]:
    finding = item.finding
    result: dict[str, Any] = {
        "ruleId": finding.rule,
        "ruleIndex": index,
        "level": _LEVELS[finding.severity],
        "message": {"text": sentences(finding)},
        "locations": [_location(finding.origin, item.profile, report)],
        "partialFingerprints": {"kimiServe/v1": item.fingerprint},
    }
    if finding.related:
        result["relatedLocations"] = [
            {"id": number} | _location(other, item.profile, report)
            for number, other in enumerate(finding.related, start=1)
        ]
    return result


def _location(origin: Origin, profile: str, report: Report) -> dict[str, Any]:
    """Give a place of one line; what has none points at line 1 of the profile, and is named."""
    column = origin.column or 1
    line = origin.line or 1
    end = max(origin.end_column or 0, column + 1)
    region = {"startLine": line, "startColumn": column, "endLine": line, "endColumn": end}
    file = origin.name if origin.line is not None else profile
    artifact = _artifact(report.names.get(file, file))
    location: dict[str, Any] = {
        "physicalLocation": {"artifactLocation": artifact, "region": region}
    }
    if origin.line is None and origin.kind != "default":
        kind = "env" if origin.kind in ("env", "engine-env") else "cli"
        name = f"{kind}:{origin.name}"
        location["logicalLocations"] = [{"name": name, "fullyQualifiedName": name}]
    return location


def _artifact(file: str) -> dict[str, Any]:
    """Give a relative URI of the bytes of a name: GitHub shows no alert for any other."""
    name = os.path.relpath(file) if os.path.isabs(file) else file
    return {"uri": quote(os.fsencode(PurePath(name).as_posix()), safe="/")}
