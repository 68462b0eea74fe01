"""Which setting somebody meant by a key, a variable or a flag that does not exist."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from kimi_serve.schemas.engine_names import SWITCH
from kimi_serve.schemas.fields import (
    ENV_PREFIX,
    SettingField,
    keys_of,
    sections,
    setting_fields,
)
from kimi_serve.schemas.vocabulary import FORCE_CPU

from .near import closest, slips
from .opposites import means_opposite

# Upstream's own switch, spelt as a key of a profile or with our prefix.
_UPSTREAM = {SWITCH.lower(): FORCE_CPU}
_MAX_LENGTH = 80
_MAX_SLIPPED = 16


def nearest(word: str, candidates: Iterable[str]) -> str | None:
    """Give the candidate that `word` was most likely meant to be."""
    if len(word) > _MAX_LENGTH:
        return None
    return closest(word.casefold(), candidates, 0.6)


def suggest_key(section: str | None, key: str) -> str | None:
    """Give a clause for an unknown `key` of `section` (None: at the root of a profile)."""
    own = keys_of(section)
    head, colon, _ = key.partition(":")
    if colon and head in own:
        return f"a space is missing after `{head}:`"
    word = _normalise(key)
    if word in own:
        return f"did you mean `{word}`?"
    dotted = _dotted_key(section, key.strip())
    if dotted:
        return dotted
    field = _by_alias().get(word)
    if field and field.name != word:
        turned = ", which means the opposite" if means_opposite(word, field.name) else ""
        return f"write `{field.name}` under `{field.section}`{turned}"
    homes = _by_name().get(word, ())
    if homes:
        return f"`{word}` belongs under {_alternatives(home.section for home in homes)}"
    flag = flag_of_engine(key, "") if nearest(word, own) is None else ""
    return f"it belongs in `engine.args` as {flag}" if flag else _close_key(own, word)


def _dotted_key(section: str | None, key: str) -> str | None:
    """Say where a key with dots belongs: a profile has sections instead."""
    path = f"{section}.{key}" if section else key
    if "." not in key or path not in {**setting_fields(), **sections()}:
        return None
    home, _, name = path.rpartition(".")
    inner = home.removeprefix(f"{section}.") if section else home
    return f"write `{name}` under `{inner}`"


def similar_key(section: str | None, key: str) -> str | None:
    """Give the key of the same section that an unknown `key` was most likely meant to be."""
    own = keys_of(section)
    word = _normalise(key)
    if word in own:
        return word
    if word in _by_alias() or word in _by_name() or _dotted_key(section, key.strip()):
        return None
    match = nearest(word, own)
    return None if match is None or means_opposite(word, match) else match


def _close_key(own: Iterable[str], word: str) -> str | None:
    """Look near the word, then near what it was before a slip of two letters."""
    for each in (word, *(slips(word) if len(word) <= _MAX_SLIPPED else ())):
        match = nearest(each, own)
        if match:
            if means_opposite(word, match):
                return f"the nearest is `{match}`, which means the opposite"
            return f"did you mean `{match}`?"
        match = nearest(each, _by_name())
        if match:
            homes = _alternatives(home.section for home in _by_name()[match])
            if means_opposite(word, match):
                return f"the nearest is `{match}` under {homes}, which means the opposite"
            return f"did you mean `{match}` under {homes}?"
    return None


def suggest_variable(name: str) -> str | None:
    """Give the variable that `name`, which has our prefix in any case, was meant to be."""
    word = _normalise(name)
    tail = word.removeprefix(ENV_PREFIX.lower())
    field = _by_alias().get(tail)
    if field:
        return field.env_name
    homes = _by_name().get(tail, ())
    if len(homes) == 1:
        return homes[0].env_name
    by_tail = {field.parameter: field for field in setting_fields().values()}
    match = nearest(tail, by_tail)
    return by_tail[match].env_name if match and not means_opposite(tail, match) else None


def suggest_path(path: str) -> str | None:
    """Give the dotted path that an unknown `path` was meant to be."""
    field = _by_alias().get(_normalise(path))
    if field:
        return field.path
    homes = _by_name().get(_normalise(path.rpartition(".")[2]), ())
    match = homes[0].path if len(homes) == 1 else nearest(path, setting_fields())
    return None if match is None or means_opposite(path, match) else match


def flag_of(text: str) -> str | None:
    """Give the flag that `text` spells, whatever its leading characters are."""
    word = text.casefold().replace("_", "-")
    for field in setting_fields().values():
        bare = field.flag.removeprefix("--")
        if word == bare:
            return field.flag
        if field.negative_flag and word == field.negative_flag.removeprefix("--"):
            return field.negative_flag
    return None


def flag_of_engine(key: str, engine: str) -> str:
    """Give the flag that an engine takes under this name, "" for none.

    Without an engine that is known: that of the first which has it.
    """
    from kimi_serve.schemas.engine_facts import engine_table, engines

    word = key.strip().lstrip("-").replace("_", "-").casefold()
    if not re.fullmatch(r"[a-z][a-z0-9-]{0,79}", word):
        return ""
    for kind in (engine,) if engine in engines() else engines():
        table = engine_table(kind)
        for spelling in (f"--{word}", f"--{word}-size", f"-{word}"):
            if table is not None and spelling in table.by_spelling:
                return table.by_spelling[spelling].flag
    return ""


def _normalise(word: str) -> str:
    return word.strip().lstrip("-").casefold().replace("-", "_").replace(".", "__")


def _alternatives(words: Iterable[str]) -> str:
    return " or ".join(f"`{word}`" for word in words)


@cache
def _by_name() -> dict[str, tuple[SettingField, ...]]:
    homes: dict[str, tuple[SettingField, ...]] = {}
    for field in setting_fields().values():
        homes[field.name] = (*homes.get(field.name, ()), field)
    return homes


@cache
def _by_alias() -> dict[str, SettingField]:
    """The settings by every way to spell them outside their own place, and by upstream's name."""
    aliases = {word: setting_fields()[path] for word, path in _UPSTREAM.items()}
    for field in setting_fields().values():
        flag = field.flag.removeprefix("--").replace("-", "_")
        spellings = [field.parameter, field.parameter.replace("__", "_"), flag]
        if field.kind == "bool":
            spellings.append(f"no_{flag}")
        spellings += [f"{ENV_PREFIX.lower()}{spelling}" for spelling in spellings]
        for spelling in spellings:
            aliases.setdefault(spelling, field)
    return aliases
