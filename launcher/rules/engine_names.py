"""Names in engine.env that no variable can have, or that nobody reads there: KS104, KS202."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kimi_serve.schemas.fields import ENV_PREFIX, setting_fields
from kimi_serve.schemas.findings import Finding
from kimi_serve.schemas.provenance import Origin

from ..resolver.engine_view import ARGS, ENV, Given
from ..resolver.situation import Situation
from ..sources.characters import find_odd, shown
from .wording import at


def variable_names(situation: Situation) -> Iterator[Finding]:
    """Find names and texts that the kernel, or a reader, cannot take (KS104, KS006)."""
    for name, text in situation.settings.engine.env.items():
        entry = situation.loaded.entry(ENV, name)
        given = Given(name, text, entry.name, ENV, entry.value)
        odd = find_odd(name)
        if not name or "=" in name or "\0" in name:
            what = "an empty text" if not name else "a `=`" if "=" in name else "a NUL"
            has = "is" if not name else "holds"
            message = f"a name in {ENV} {has} {what}: no variable can be called so"
            yield at("KS104", given, message, "write NAME: value, one entry for each")
        elif odd is not None:
            message = f"a name in {ENV} holds {odd}"
            yield at("KS006", given, message, "type it again by hand")
        if "\0" in text:
            yield _with_nul(given.at_value.origin, ENV)
    for index, text in enumerate(situation.settings.engine.args):
        if "\0" in text:
            yield _with_nul(situation.loaded.item(ARGS, index), ARGS)


def _with_nul(origin: Origin, path: str) -> Finding:
    given = Given("", "", origin, path)
    return at("KS104", given, f"a text in {path} holds a NUL: no process can be given it")


def own_variables(situation: Situation) -> Iterator[Finding]:
    """Find our own variables among the engine's: they are read before, and elsewhere (KS202)."""
    if situation.kind == "none":
        return
    by_name = {field.env_name: field.path for field in setting_fields().values()}
    for name, text in situation.settings.engine.env.items():
        if not name.upper().startswith(ENV_PREFIX):
            continue
        entry = situation.loaded.entry(ENV, name)
        given = Given(name, text, entry.name, ENV, entry.value)
        path = by_name.get(name.upper(), "")
        message = f"{shown(name)} has no effect in {ENV}: kimi-serve reads it before, and no engine"
        help = f"set `{path}` instead" if path else "remove it"
        yield at("KS202", given, message, help)


RULES: tuple[Callable[[Situation], Iterator[Finding]], ...] = (variable_names, own_variables)
