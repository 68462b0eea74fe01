"""Short ways to read settings in tests and to compare what was said about them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kimi_serve.launcher.sources.layers import Layer
from kimi_serve.launcher.sources.profile import read_profile_text
from kimi_serve.schemas.findings import Finding


def read_text(
    text: str | bytes, env: Mapping[str, str] | None = None, folder: str = "/deploy"
) -> Layer:
    """Read one profile text called p.yaml."""
    (layer,) = read_profile_text(text, "p.yaml", folder, {} if env is None else env)
    return layer


def values(layer: Layer) -> dict[str, Any]:
    return {leaf.path: leaf.value for leaf in layer.leaves}


def brief(findings: Iterable[Finding]) -> list[str]:
    """Give "KS104 error p.yaml:1:2" for each."""
    return [f"{found.rule} {found.severity} {found.origin}" for found in findings]


def everything(findings: Iterable[Finding]) -> str:
    """Give all words of all findings."""
    return "\n".join(repr(found) + str(found) for found in findings)
