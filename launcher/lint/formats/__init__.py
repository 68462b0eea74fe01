"""The formats by name: each turns a report into text, with the standard library alone."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ..report import Report

_MODULES: Final = {
    "full": "text",
    "concise": "text",
    "json": "json_report",
    "github": "github",
    "sarif": "sarif",
    "junit": "junit",
}
FORMAT_NAMES: Final = tuple(_MODULES)


def render(format: str, report: Report) -> str:
    """Write a report in one format; only that one is loaded."""
    module = import_module(f".{_MODULES[format]}", __package__)
    name = "json_report" if format == "json" else format
    text: str = getattr(module, name)(report)
    return text
