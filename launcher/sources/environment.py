"""Reads `KIMI_SERVE_*` variables, and upstream's own switch as a layer below them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from kimi_serve.schemas.engine_booleans import read_boolean
from kimi_serve.schemas.engine_names import OLD_SWITCH, SWITCH
from kimi_serve.schemas.fields import ENV_PREFIX, setting_fields
from kimi_serve.schemas.provenance import Origin
from kimi_serve.schemas.vocabulary import FORCE_CPU, LINT_FORMAT

from .characters import find_odd, printable, shown
from .layers import Layer, Leaf, Notes
from .paths import Surroundings, working_folder
from .scalars import read_text
from .suggest import suggest_variable

RESERVED: Final = frozenset({LINT_FORMAT})
"""Variables with our prefix that are no settings: other commands read them."""

# What Kubernetes injects for a Service: suffix of the name, form of the value.
_SERVICE_LINKS: Final = (
    (re.compile(r"_SERVICE_HOST"), re.compile(r".*")),
    (re.compile(r"_SERVICE_PORT(_[A-Z0-9_]+)?"), re.compile(r"[0-9]+")),
    (re.compile(r"_PORT"), re.compile(r"(tcp|udp|sctp)://.*")),
    (re.compile(r"_PORT_[0-9]+_(TCP|UDP|SCTP)"), re.compile(r"(tcp|udp|sctp)://.*")),
    (re.compile(r"_PORT_[0-9]+_(TCP|UDP|SCTP)_(PROTO|PORT|ADDR)"), re.compile(r".*")),
)


def read_environment(env: Mapping[str, str]) -> Layer:
    """Read every variable with our prefix; one that nobody reads is an error."""
    place = Surroundings(working_folder(), env)
    by_name = {field.env_name: field for field in setting_fields().values()}
    leaves: list[Leaf] = []
    notes = Notes.on(Origin("env", ENV_PREFIX))
    for name in sorted(name for name in env if name.upper().startswith(ENV_PREFIX)):
        origin = Origin("env", printable(name))
        notes.turn_to(origin)
        field = by_name.get(name)
        if field:
            leaf = read_text(field, env[name], origin, place, notes)
            leaves += [leaf] if leaf else []
        elif name not in RESERVED and not is_service_link(name, env):
            _note_unknown(name, notes)
    return Layer("environment", tuple(leaves), tuple(notes.findings))


def _note_unknown(name: str, notes: Notes) -> None:
    odd = find_odd(name)
    if odd:
        notes.add("KS006", f"the name {shown(name)} holds {odd}", help="type it again by hand")
        return
    suggestion = suggest_variable(name)
    message = f"nothing reads the variable {printable(name)}"
    notes.add(
        "KS102",
        f"{message}; did you mean {suggestion}?" if suggestion else message,
        help="a setting is KIMI_SERVE_ + section + two underscores + name, in capitals",
    )


def is_service_link(name: str, env: Mapping[str, str]) -> bool:
    """Say whether Kubernetes set `name` for a Service.

    The suffix alone would also hide KIMI_SERVE_SERVER_PORT, a misspelt setting; a real link comes
    with its Service's `<BASE>_SERVICE_HOST`.
    """
    for suffix, form in _SERVICE_LINKS:
        for match in suffix.finditer(name):
            base = name[: match.start()]
            is_link = match.end() == len(name) and f"{base}_SERVICE_HOST" in env
            if is_link and form.fullmatch(env[name]):
                return True
    return False


def read_engine_environment(env: Mapping[str, str]) -> Layer:
    """Read SGLang's own switch, the twin on top: the engine lets it overwrite the switch."""
    leaves: list[Leaf] = []
    notes = Notes.on(Origin("engine-env", SWITCH))
    for name in (SWITCH, OLD_SWITCH):
        value = env.get(name, "")
        if not value:
            continue
        origin = Origin("engine-env", name)
        notes.turn_to(origin)
        word = read_boolean("env-bool", value)
        if not isinstance(word, bool):
            _note_misread(name, value, notes)
        else:
            leaves.append(Leaf(FORCE_CPU, value, word, origin))
            _note_taken(name, word, notes)
    return Layer("engine environment", tuple(leaves), tuple(notes.findings))


def _note_misread(name: str, value: str, notes: Notes) -> None:
    odd = find_odd(value)
    held = f", which holds {odd}," if odd else ""
    notes.add(
        "KS107",
        f"{name}={shown(value)}{held} is no boolean to the engine: it would warn and use its "
        "default False, which is GPU preprocessing",
        path=FORCE_CPU,
        help=f"set it to 1 or 0, or use {setting_fields()[FORCE_CPU].env_name}",
    )


def _note_taken(name: str, value: bool, notes: Notes) -> None:
    is_twin = name == OLD_SWITCH
    more = f"; in the engine it overwrites {SWITCH}" if is_twin else ""
    notes.add(
        "KS109",
        f"{name} is taken as `{FORCE_CPU}`: {'true' if value else 'false'}{more}",
        severity="warning" if is_twin else "info",
        path=FORCE_CPU,
        help=f"{setting_fields()[FORCE_CPU].env_name} is the name of the setting here",
    )
