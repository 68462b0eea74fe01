"""Reads one profile and gives every finding: the reader's, then the rules' on what is valid."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from kimi_serve.schemas.findings import Finding
from kimi_serve.schemas.hardware import Hardware
from kimi_serve.schemas.provenance import Origin
from kimi_serve.schemas.support import load_support

from ..resolver.situation import look_up
from ..rules import run_rules
from ..secrets.findings import scrub
from ..secrets.given import secrets_of_settings, secrets_outside
from ..secrets.known import Known
from ..sources.characters import printable
from ..sources.environment import read_engine_environment, read_environment
from ..sources.files import read_file
from ..sources.flags import read_flags
from ..sources.layers import Layer
from ..sources.load import Layers, merge
from ..sources.profile import read_profile_text
from ..sources.yaml_tree import MAX_BYTES
from .checkpoint import checkpoint_beside
from .source_text import SourceText
from .suppressions import apply_suppressions


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What lint looks at beside the files: nothing, unless the user says so.

    `places` has where in an env file a variable stands.
    """

    env: Mapping[str, str] | None = None
    places: Mapping[str, Origin] = field(default_factory=lambda: dict[str, Origin]())
    flags: Mapping[str, object] = field(default_factory=lambda: dict[str, object]())
    set_items: tuple[str, ...] = ()
    check_host: bool = False


HERMETIC = Surroundings()


@dataclass(frozen=True, slots=True)
class Linted:
    """One profile: what was found, and the texts of it and its parents by their shown names.

    `findings` is what stays after suppressions; `written` is the same with what a fix may write
    still in it, which no format may see. `known` are the secrets that came up. `files` has the
    names as they are.
    """

    name: str
    findings: tuple[Finding, ...]
    written: tuple[Finding, ...]
    sources: Mapping[str, SourceText]
    known: Known
    files: Mapping[str, str]


def load(path: Path, *, is_named: bool = False) -> bytes:
    """Read a file, a little more than a profile may have; `is_named` is that of `read_file`."""
    return read_file(path, MAX_BYTES + 1, is_named=is_named)


def lint_profile(
    data: bytes,
    *,
    name: str,
    folder: Path,
    around: Surroundings = HERMETIC,
    file: Path | None = None,
) -> Linted:
    """Read, merge what is valid, run the rules, apply the suppressions."""
    own = read_profile_text(data, name, str(folder), around.env, str(file) if file else None)
    layers = [*own, *_outside(around)]
    sources = _sources(own, data, name, folder)
    files = {printable(name): name} | {layer.name: layer.file for layer in own if layer.file}
    loaded = merge(Layers(tuple(replace(layer, findings=()) for layer in layers)))
    found = [finding for layer in layers for finding in layer.findings]
    checkpoint = checkpoint_beside(loaded.settings.model.path)
    situation = look_up(loaded, checkpoint, _hardware(around), load_support(), around.env)
    found += run_rules(situation)
    placed = [_in_env_file(finding, around.places) for finding in found]
    shown_name = printable(name)
    kept = apply_suppressions(dict.fromkeys(placed), sources, shown_name)
    written = tuple(sorted(kept, key=lambda finding: place_key(finding, shown_name)))
    known = _known(sources.values(), around) | secrets_of_settings(loaded)
    scrubbed = tuple(scrub(found, known) for found in written)
    hiding = {name: source.hiding(known) for name, source in sources.items()}
    return Linted(shown_name, scrubbed, written, hiding, known, files)


def _known(sources: Iterable[SourceText], around: Surroundings) -> Known:
    """Give the secrets of the texts and of what surrounds them."""
    env = around.env or {}
    values: set[str] = set()
    for source in sources:
        values |= source.values | {env[name] for name in source.variables if name in env}
    return Known(values) | secrets_outside(env, around.flags, around.set_items)


def place_key(finding: Finding, name: str) -> tuple[str, int, int, str, str, str]:
    """Order findings by file, line, column; what has no place comes first in its profile."""
    origin = finding.origin
    file = origin.name if origin.line is not None else name
    place = (file, origin.line or 0, origin.column or 0)
    return (*place, finding.rule, finding.path, finding.message)


def _outside(around: Surroundings) -> list[Layer]:
    layers: list[Layer] = []
    if around.env is not None:
        layers += [read_engine_environment(around.env), read_environment(around.env)]
    layers.append(read_flags(around.flags, around.set_items, around.env))
    return layers


def _hardware(around: Surroundings) -> Hardware | None:
    if not around.check_host:
        return None
    from ..machine.hardware import probe

    return probe(around.env or {})


def _sources(
    layers: Iterable[Layer], data: bytes, name: str, folder: Path
) -> dict[str, SourceText]:
    """Give the texts by their shown names; a parent that is gone meanwhile has none."""
    sources = {printable(name): SourceText.read(data)}
    for layer in layers:
        if layer.name in sources:
            continue
        inside = os.path.relpath(layer.file, os.path.dirname(name) or ".")
        path = Path(layer.file) if os.path.isabs(layer.file) else folder / inside
        try:
            sources[layer.name] = SourceText.read(load(path))
        except (OSError, ValueError):
            continue
    return sources


def _in_env_file(finding: Finding, places: Mapping[str, Origin]) -> Finding:
    """Point at the line of an env file instead of at the variable."""

    def place(origin: Origin) -> Origin:
        is_variable = origin.kind in ("env", "engine-env")
        return places.get(origin.name, origin) if is_variable else origin

    return replace(
        finding, origin=place(finding.origin), related=tuple(map(place, finding.related))
    )
