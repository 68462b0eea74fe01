"""One engine's whole table, and its text: a row a line, in a fixed order, for readable diffs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

from .curated import Curated
from .environment import beside_registry, sglang_environment, vllm_environment
from .package import Package, ReadingError
from .rows import Flag, Row
from .sglang_flags import sglang_flags
from .vllm_flags import vllm_flags

FORMAT = 1
# How the engine's argparse reads a flag: vLLM also takes --max_model_len and --config.key value.
_SPELLING = {
    "sglang": {"abbreviations": True, "underscores": False, "dotted": False},
    "vllm": {"abbreviations": True, "underscores": True, "dotted": True},
}
_PREFIXES = {"sglang": ("SGLANG_", "SGL_"), "vllm": ("VLLM_",)}
_ROWS = ("flags", "environment", "undeclared_environment", "removed")
_RENAMED = {"sglang": {"SGL_": "SGLANG_"}, "vllm": {}}


def build_table(package: Package) -> Row:
    sglang = package.engine == "sglang"
    flags = sglang_flags(package) if sglang else vllm_flags(package)
    flags.append(Flag(("--help", "-h"), "help", "bool", "store_true", default=False).row(""))
    declared = sglang_environment(package) if sglang else vllm_environment(package)
    beside = beside_registry(package, _PREFIXES[package.engine], declared)
    curated = Curated(package.engine)
    beside += curated.compiled
    curated.mark_deprecated(flags, "flag", "deprecated")
    curated.mark_deprecated(declared, "name", "deprecated_by")
    spelt = [name for row in flags for name in _spellings(row)]
    existing = {*spelt, *(str(row["name"]) for row in [*declared, *beside])}
    return {
        "format": FORMAT,
        "engine": package.engine,
        "version": package.version,
        "spelling": _SPELLING[package.engine],
        "prefixes": list(_PREFIXES[package.engine]),
        "renamed_prefixes": _RENAMED[package.engine],
        "flags": _sorted(flags, "flag", spelt),
        "environment": _sorted(declared, "name"),
        "undeclared_environment": _sorted(beside, "name"),
        "removed": curated.removed(existing),
    }


def _spellings(row: Row) -> list[str]:
    return [row["flag"], *row.get("aliases", []), *row.get("negatives", [])]


def _sorted(rows: Sequence[Row], key: str, names: Sequence[str] | None = None) -> list[Row]:
    every = [str(row[key]) for row in rows] if names is None else names
    twice = sorted({name for name in every if every.count(name) > 1})
    if twice:
        message = f"declared more than once: {', '.join(twice)}"
        raise ReadingError(message)
    return sorted(rows, key=lambda row: str(row[key]))


def render(table: Row) -> str:
    """Give the table as JSON, each row of its lists on a line of its own."""
    return "{\n" + ",\n".join(_entry(key, value) for key, value in table.items()) + "\n}\n"


def _entry(key: str, value: Any) -> str:
    if not (isinstance(value, list) and key in _ROWS):
        return f"  {json.dumps(key)}: {json.dumps(value)}"
    lines = [f"    {json.dumps(row, ensure_ascii=False)}" for row in cast("list[Row]", value)]
    return f"  {json.dumps(key)}: [\n" + ",\n".join(lines) + "\n  ]"
