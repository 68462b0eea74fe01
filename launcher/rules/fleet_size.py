"""Whether the engine fits on the GPUs that it will see (KS306), and who says which they are.

KS203 where engine.env says others than gpu.ids, KS202 where gpu.ids do not reach the engine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from kimi_serve.schemas.engine_names import VISIBLE
from kimi_serve.schemas.findings import Finding, Severity
from kimi_serve.schemas.hardware import Gpu
from kimi_serve.schemas.provenance import Origin

from ..engines.gpus import IDS, needed_gpus
from ..machine.visible_gpus import visible_gpus
from ..resolver.engine_view import ENV
from ..resolver.situation import Situation
from ..sources.characters import shown
from .wording import at, on

# No machine has as many as five digits say.
_NUMBER = re.compile(r"[0-9]{1,4}(?![0-9])")


@dataclass(frozen=True, slots=True)
class _Visible:
    """How many GPUs the engine will see, and who says so."""

    number: int
    text: str
    origin: Origin | None


def gpu_findings(situation: Situation) -> Iterator[Finding]:
    """Say that more GPUs are asked for than the engine will see."""
    if situation.kind == "none":
        return
    visible, needed = _visible(situation), needed_gpus(situation)
    if visible is None:
        return
    related = () if visible.origin is None else (visible.origin,)
    if needed is not None and needed.asked and needed.number > visible.number:
        asked = " x ".join(f"{each.name} {each.text}" for each in needed.asked)
        message = f"{asked} needs {needed.number} GPUs a node, and there are {visible.number}: "
        given = needed.asked[0].at_value
        yield at("KS306", given, message + visible.text, "lower one of them", related=related)
    base = situation.flag("--base-gpu-id")
    first = situation.whole(base)
    if base is not None and first is not None and first >= visible.number:
        message = (
            f"{base.name} {first} is outside the {visible.number} GPUs that the engine sees: "
            f"{visible.text}; it counts the visible ones from 0"
        )
        help = "write an index, not a physical id"
        yield at("KS306", base.at_value, message, help, related=related)


def _visible(situation: Situation) -> _Visible | None:
    given = situation.variable(VISIBLE)
    if given is not None and given.is_open:
        return None
    if given is not None:
        said = f"{VISIBLE}={shown(given.text)} lets the engine see so many"
        return _Visible(_count(given.text), said, given.origin)
    ids = situation.settings.gpu.ids
    if ids is not None:
        return _Visible(_count(",".join(ids)), "gpu.ids declares them", situation.origin(IDS))
    # An engine may be planned on a machine without a GPU for another one.
    if situation.hardware is not None and situation.hardware.gpus:
        hardware = situation.hardware
        return _Visible(len(hardware.gpus), hardware.gpu_source, None)
    return None


def _count(text: str) -> int:
    """Count the devices that a text names, as CUDA would where each of them is there."""
    entries = dict.fromkeys(entry.strip() for entry in text.split(","))
    numbers = [int(found[0]) for entry in entries if (found := _NUMBER.match(entry))]
    numbered = tuple(Gpu(index) for index in range(1 + max((0, *numbers))))
    named = tuple(Gpu(-1, uuid=entry) for entry in entries if entry.startswith("GPU-"))
    return len(visible_gpus((*numbered, *named), text))


def declared_gpus(situation: Situation) -> Iterator[Finding]:
    """Say where the engine does not get the GPUs of gpu.ids (KS203, KS202)."""
    ids = situation.settings.gpu.ids
    if situation.kind == "none" or ids is None or not situation.is_set(IDS):
        return
    given = situation.variable(VISIBLE)
    if given is None:
        if ids and needed_gpus(situation) is None:
            message = (
                f"{IDS} does not reach the engine: which GPUs it takes here is not in its "
                f"arguments alone, so no {VISIBLE} is set"
            )
            help = f"set {VISIBLE} in {ENV} where it is needed"
            yield on(situation, "KS202", IDS, message, help, severity="info")
        return
    names = tuple(name.strip() for name in given.text.split(",") if name.strip())
    if given.is_open or names == ids:
        return
    # A UUID and a number may name the same device, and what is inherited is of this machine.
    is_certain = all(name.isdecimal() for name in (*names, *ids)) and bool(given.path)
    severity: Severity = "error" if is_certain else "warning"
    message = (
        f"{given.name}={shown(given.text)} is not what {IDS} says ({', '.join(ids) or 'none'}): "
        "the engine takes the variable"
    )
    help = f"remove one of the two: {IDS} becomes that variable"
    related = (situation.origin(IDS),)
    yield at("KS203", given.at_value, message, help, severity=severity, related=related)


RULES = (gpu_findings, declared_gpus)
