"""The pages of the rules, as they lie in `docs/rules/` and are packaged from there."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Final

HEADINGS: Final = (
    "What it finds",
    "Why it matters",
    "Example",
    "Fix",
    "Versions",
    "Source",
)

_HERE = Path(__file__).resolve().parent.parent
# Installed they lie beside this package; in a checkout, also an editable one, in the docs.
_FOLDERS = (_HERE / "rule_pages", _HERE / "docs" / "rules")


@cache
def page(rule: str) -> str:
    """Give the whole page of a rule, Markdown; KeyError when it has none."""
    for folder in _FOLDERS:
        path = folder / f"{rule}.md"
        if path.is_file():
            return path.read_text(encoding="utf-8")
    raise KeyError(rule)


def section(rule: str, heading: str) -> str:
    """Give what stands below one of `HEADINGS`; KeyError when it is not there."""
    match = re.search(
        rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", page(rule), re.DOTALL | re.MULTILINE
    )
    if match is None:
        raise KeyError(heading)
    return match[1].strip() + "\n"
