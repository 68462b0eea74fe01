"""Takes the secrets of one file out of what is said about the others."""

from __future__ import annotations

from dataclasses import replace

from ..secrets.findings import scrub
from ..secrets.known import Known
from .report import Report


def scrub_report(report: Report, known: Known) -> Report:
    """Give the report of several files: what is secret in one of them is so in all."""
    reported = tuple(replace(item, finding=scrub(item.finding, known)) for item in report.reported)
    sources = {name: source.hiding(known) for name, source in report.sources.items()}
    return replace(report, reported=reported, sources=sources)
