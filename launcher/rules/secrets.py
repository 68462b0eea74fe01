"""Who may do what: KS504 remote-code-unpinned, KS505 literal-secret, KS506 public-without-key."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kimi_serve.schemas.findings import Finding
from kimi_serve.schemas.hub_id import is_hub_id

from ..resolver.engine_view import ARGS, ENV, Given
from ..resolver.situation import Situation
from ..secrets.literal import literals_of_items, literals_of_variable
from ..sources.characters import printable
from .given import (
    answers_clients,
    flag_name,
    host,
    is_public,
    variable_value_origin,
    variables,
)

_MOVING = ("main", "master", "head", "latest")


def unpinned_code(situation: Situation) -> Iterator[Finding]:
    """Find code that is taken from a hub as it is on the day of the start (KS504)."""
    trust = situation.given("model.trust_remote_code")
    if situation.kind == "none" or trust is None or trust.text != "true":
        return
    model = situation.given("model.path") or _positional(situation)
    if model is None or not is_hub_id(model.text):
        return
    revision = situation.given("model.revision")
    if revision is not None and revision.text.casefold() not in _MOVING:
        return
    what = f"revision {revision.text} moves" if revision else "no revision is named"
    yield Finding(
        "KS504",
        "warning",
        f"the engine runs code of {printable(model.text)} as the hub has it at each start: {what}",
        trust.origin,
        trust.path,
        help="set model.revision to a commit, or model.path to a directory",
    )


def _positional(situation: Situation) -> Given | None:
    """Give the model that stands as a bare word among the arguments."""
    for argument in situation.arguments:
        if not argument.spelling and not argument.problem and argument.values:
            origin = situation.loaded.item(ARGS, argument.position)
            return Given("model", argument.values[0], origin, ARGS)
    return None


def literal_secrets(situation: Situation) -> Iterator[Finding]:
    """Find secrets that stand in the profile itself (KS505); a message never repeats one."""
    yield from _in_arguments(situation)
    for name, text in situation.settings.engine.env.items():
        facts = situation.table.env(name) if situation.table else None
        written = situation.loaded.written.get((ENV, name), text)
        found = literals_of_variable(name, written, is_secret=facts is not None and facts.secret)
        if _is_literal(situation, text, found):
            yield Finding(
                "KS505",
                "error",
                f"a secret stands in {ENV} as {printable(name)}, for all who read this file",
                variable_value_origin(situation, name),
                ENV,
                help=f'write "${{{printable(name)}}}", and set the variable where it is started',
            )


def _in_arguments(situation: Situation) -> Iterator[Finding]:
    args = situation.settings.engine.args
    items = [situation.loaded.written.get((ARGS, place), text) for place, text in enumerate(args)]
    flags = _flags(situation)
    for place, found in enumerate(literals_of_items(items)):
        flag = flags.get(place, "")
        if _is_literal(situation, args[place], found):
            where = f"behind {printable(flag)}" if flag else f"in {ARGS}"
            key = flag == "--api-key"
            yield Finding(
                "KS505",
                "error",
                f"a secret stands {where}, for all who read this file",
                situation.loaded.item(ARGS, place),
                ARGS,
                help="write server.api_key: {env: NAME} instead" if key else 'write "${NAME}"',
            )


def _flags(situation: Situation) -> dict[int, str]:
    """Name the flag that each item belongs to, in full where it is known."""
    return {
        place: flag_name(argument) or argument.spelling
        for argument in situation.arguments
        for place in range(argument.position, argument.end)
    }


def _is_literal(situation: Situation, text: str, found: set[str]) -> bool:
    """Tell whether any of what was found stands in the file itself, and came from no variable."""
    values = set((situation.env or {}).values())
    return text not in values and not found <= values


def public_without_key(situation: Situation) -> Iterator[Finding]:
    """Find an address that others reach and no key that they need (KS506)."""
    listens = host(situation)
    if not is_public(listens.text) or situation.given("server.api_key") is not None:
        return
    if not answers_clients(situation):
        return
    if situation.kind == "none" and situation.settings.server.previous_api_key is not None:
        return
    found = variables(situation)
    if situation.kind == "vllm" and found.get("VLLM_API_KEY"):
        return
    yield Finding(
        "KS506",
        "warning",
        f"everybody who reaches {listens.text} can use the server: there is no key",
        listens.origin,
        listens.path,
        help="set server.api_key: {env: NAME}, or listen on 127.0.0.1 behind a proxy that checks",
    )


RULES: tuple[Callable[[Situation], Iterator[Finding]], ...] = (
    unpinned_code,
    literal_secrets,
    public_without_key,
)
