"""Names that an engine does not know, or knows by another name today.

KS102 unknown-variable, KS103 unknown-engine-flag, KS109 deprecated-name (abbreviations as well),
KS110 legacy-name-wins.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kimi_serve.schemas.engine_facts import EngineTable, engine_table, engines
from kimi_serve.schemas.engine_names import OLD_SWITCH, SWITCH
from kimi_serve.schemas.findings import Finding, Severity

from ..engine_command import EngineArgument
from ..engine_hints import hint_for, hint_for_variable
from ..resolver.engine_view import ARGS, REFERENCE, Given, origin_of, text_of
from ..resolver.situation import Situation
from ..sources.characters import printable, shown
from ..sources.environment import is_service_link
from .process import is_shell_text
from .wording import at, replaced

# What may be repeated in a message: anything else may be a value, even a secret.
_PLAIN_FLAG = re.compile(r"--[A-Za-z][\w.-]{0,79}|-[a-z]{1,20}")


def unknown_flags(situation: Situation) -> Iterator[Finding]:
    """Say which words of engine.args the engine would refuse (KS103)."""
    table = situation.table
    if table is None:
        return
    for argument in situation.arguments:
        if REFERENCE in situation.settings.engine.args[argument.position]:
            continue  # what it will be is not known
        if argument.problem in ("unknown", "ambiguous", "no value"):
            yield _refused(situation, argument, table)
        elif argument.problem == "loose word" and not is_shell_text(argument):
            # The word itself may be a secret that lost its flag.
            word = Given("", "", origin_of(situation.loaded, argument), ARGS)
            message = f"no flag of {situation.engine_name} takes this word"
            yield at("KS103", word, message, "put it behind the flag that it belongs to, or remove")


def _refused(situation: Situation, argument: EngineArgument, table: EngineTable) -> Finding:
    flag = _as_given(situation, argument)
    name = flag.name if _PLAIN_FLAG.fullmatch(flag.name) else "this word"
    hint = hint_for(argument, table)
    if argument.problem == "no value":
        return at("KS103", flag, f"{name} needs a value", "give it the next item of engine.args")
    what = "has no flag" if argument.problem == "unknown" else "refuses as ambiguous"
    text = f"; {hint.text}" if hint.text else ""
    fix = None
    if hint.reason in ("spelling", "near", "other engine") and hint.instead:
        fix = replaced(flag, flag.name, hint.instead, _item(situation, argument), "unsafe")
    message = f"{situation.engine_name} {what} {name}{text}"
    help = f"write {hint.instead}" if hint.instead else "remove it: the engine exits with code 2"
    return at("KS103", flag, message, help, fix=fix)


def _as_given(situation: Situation, argument: EngineArgument) -> Given:
    name = f"{argument.spelling}.{argument.key}" if argument.key else argument.spelling
    return Given(name, text_of(argument), origin_of(situation.loaded, argument), ARGS)


def _item(situation: Situation, argument: EngineArgument) -> str:
    return situation.settings.engine.args[argument.position]


def unknown_variables(situation: Situation) -> Iterator[Finding]:
    """Say which variables with an engine's prefix nobody reads (KS102)."""
    table = situation.table
    if table is None:
        return
    inherited = situation.env or {}
    for given in situation.variables():
        if given.path and _is_of_other(given.name, table):
            message = f"{situation.engine_name} does not read {printable(given.name)}"
            message += ": it is another engine's"
            yield at("KS102", given, message, "remove it", severity="warning")
        elif (
            table.owns(given.name)
            and table.env(given.name) is None
            and (given.path or not is_service_link(given.name, inherited))
        ):
            yield _unread(situation, given, table)


def _unread(situation: Situation, given: Given, table: EngineTable) -> Finding:
    # The engine starts all the same, and a plugin may read it.
    severity: Severity = "warning"
    hint = hint_for_variable(given.name, table)
    text = f"; {hint.text}" if hint.text else ""
    message = f"nothing in {situation.engine_name} reads {printable(given.name)}{text}"
    instead = f"write {hint.instead}" if hint.instead else "remove it"
    fix = None
    if hint.reason == "near" and given.path:
        fix = replaced(given, given.name, hint.instead, given.name, "unsafe")
    return at("KS102", given, message, instead, severity=severity, fix=fix)


def _is_of_other(name: str, table: EngineTable) -> bool:
    others = (engine_table(engine) for engine in engines() if engine != table.engine)
    return not table.owns(name) and any(other is not None and other.owns(name) for other in others)


def deprecated_flags(situation: Situation) -> Iterator[Finding]:
    """Say which flags of engine.args have a successor (KS109)."""
    for argument in situation.arguments:
        if argument.flag is None or not argument.flag.deprecated:
            continue
        flag = _as_given(situation, argument)
        instead = argument.flag.deprecated
        is_one_word = instead.startswith("--") and not set(instead) & set(" <{")
        fix = (
            replaced(flag, flag.name, instead, _item(situation, argument), "safe")
            if is_one_word and not argument.values
            else None
        )
        message = f"{flag.name} is deprecated in {situation.engine_name}"
        yield at("KS109", flag, message, _write(instead), fix=fix)


def abbreviated_flags(situation: Situation) -> Iterator[Finding]:
    """Say which flags are known only because the engine completes them (KS109)."""
    for argument in situation.arguments:
        if not argument.abbreviated or argument.flag is None or argument.flag.deprecated:
            continue
        flag = _as_given(situation, argument)
        full = f"{argument.full}.{argument.key}" if argument.key else argument.full
        message = (
            f"{flag.name} is short for {full} only while no other flag of {situation.kind} begins "
            "so: a release that has one refuses to start"
        )
        fix = replaced(flag, flag.name, full, _item(situation, argument), "safe")
        yield at("KS109", flag, message, f"write {full}", severity="info", fix=fix)


def deprecated_variables(situation: Situation) -> Iterator[Finding]:
    """Say which variables have a successor (KS109), and where the old name wins (KS110)."""
    table = _variables_of(situation)
    if table is None:
        return
    present = {given.name: given for given in situation.variables()}
    for given in present.values():
        facts = table.env(given.name)
        if facts is None or not facts.deprecated_by:
            continue
        current = present.get(facts.deprecated_by)
        if given.name in _DEAD:
            message = (
                f"{given.name} has no effect: nothing in {table.engine} {table.version} reads it"
            )
            instead = "leave it out" if current else _write(facts.deprecated_by)
            yield at("KS109", given, message, instead)
        elif current is not None:
            yield _old_name_wins(given, current, table)
        elif given.path or given.name not in (SWITCH, OLD_SWITCH):
            # The inherited switch is a source of settings, which says this already.
            message = f"{given.name} is deprecated in {table.engine} {table.version}"
            is_name = facts.deprecated_by.isidentifier() and bool(given.path)
            fix = (
                replaced(given, given.name, facts.deprecated_by, given.name, "safe")
                if is_name
                else None
            )
            yield at("KS109", given, message, _write(facts.deprecated_by), fix=fix)


# Declared by the engine and read nowhere: what it reads is the older name.
_DEAD = ("SGLANG_FORCE_SHUTDOWN", "SGLANG_SYNC_TOKEN_IDS_ACROSS_TP")


def _old_name_wins(old: Given, current: Given, table: EngineTable) -> Finding:
    renames = any(old.name.startswith(prefix) for prefix in table.renamed_prefixes)
    wins = (
        f"{old.name} overwrites {current.name} when {table.engine} {table.version} starts"
        if renames
        else f"{old.name} is read beside {current.name}"
    )
    facts = table.env(old.name)
    is_plain = facts is not None and (facts.is_boolean or facts.kind in ("int", "float"))
    value = f": the engine takes {shown(old.text)} now" if is_plain else ""
    message = f"{wins}: the value of the old name counts"
    help = f"keep {current.name} alone{value}"
    # What is inherited was not written for this deployment, and two of one mind do no harm.
    is_harm = bool(old.path or current.path) and old.text != current.text
    severity: Severity = "error" if is_harm else "warning"
    return at("KS110", old, message, help, severity=severity, related=(current.origin,))


def _variables_of(situation: Situation) -> EngineTable | None:
    """SGLang's old names count for an environment whose engine is not named as well."""
    return engine_table("sglang") if situation.kind == "none" else situation.table


def _write(instead: str) -> str:
    return "leave it out" if instead.startswith("nothing") else f"write {instead}"


RULES = (
    unknown_flags,
    unknown_variables,
    deprecated_flags,
    abbreviated_flags,
    deprecated_variables,
)
