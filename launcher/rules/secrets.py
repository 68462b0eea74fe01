"""Who may do what: KS504 remote-code-unpinned, KS505 literal-secret, KS506 public-without-key."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from kimi_serve.schemas.findings import Finding
from kimi_serve.schemas.hub_id import is_hub_id

from ..resolver.engine_view import ARGS, ENV, Given
from ..resolver.situation import Situation
from ..sources.characters import printable
from .given import (
    Word,
    answers_clients,
    host,
    is_public,
    variable_value_origin,
    variables,
    words,
)

_SECRET_FLAG = re.compile(r"--(.*-)?(api-key|password|secret|hf-token|auth-token)")
_SECRET_NAME = re.compile(
    r"(.*_)?(API_?KEY|ACCESS_KEY|SECRET(_KEY)?|TOKEN|PASSWORD|PASSWD|PRIVATE_KEY)", re.IGNORECASE
)
# Prefixes that issuers give their keys so that they are recognised, and passwords in addresses.
_SECRET_VALUE = re.compile(
    r"(sk-|hf_|ghp_|github_pat_|xox[abp]-|AKIA)[A-Za-z0-9_-]{8,}|[a-z0-9+]+://[^/@\s:]*:[^/@\s]+@.*"
)
# Switches, small numbers, paths: what is named like a secret and is none.
_NO_SECRET = re.compile(r"|[0-9]{1,5}|true|false|yes|no|on|off|none|null|/.*|~.*", re.IGNORECASE)
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
    for word in words(situation):
        is_secret_flag = _SECRET_FLAG.fullmatch(word.flag) and not _NO_SECRET.fullmatch(word.text)
        is_secret = bool(is_secret_flag or _SECRET_VALUE.fullmatch(word.text))
        if is_secret and not _is_word_referred(situation, word):
            key = word.flag == "--api-key"
            yield Finding(
                "KS505",
                "error",
                f"a secret stands behind {word.flag}, for all who read this file",
                word.origin,
                ARGS,
                help="write server.api_key: {env: NAME} instead" if key else 'write "${NAME}"',
            )
    for name, text in situation.settings.engine.env.items():
        is_referred = (ENV, name) in situation.loaded.written or _is_referred(situation, text)
        if _is_secret_variable(situation, name, text) and not is_referred:
            yield Finding(
                "KS505",
                "error",
                f"a secret stands in {ENV} as {printable(name)}, for all who read this file",
                variable_value_origin(situation, name),
                ENV,
                help=f'write "${{{printable(name)}}}", and set the variable where it is started',
            )


def _is_secret_variable(situation: Situation, name: str, text: str) -> bool:
    facts = situation.table.env(name) if situation.table else None
    is_named_so = bool(_SECRET_NAME.fullmatch(name)) or (facts is not None and facts.secret)
    return bool(_SECRET_VALUE.fullmatch(text)) or (
        is_named_so and not _NO_SECRET.fullmatch(text) and not text.startswith("${")
    )


def _is_word_referred(situation: Situation, word: Word) -> bool:
    """Tell whether the item that holds a value refers to a variable."""
    places = range(word.argument.position, word.argument.end)
    items = (situation.settings.engine.args[place] for place in places)
    is_written = any(
        (ARGS, place) in situation.loaded.written and item.endswith(word.text)
        for place, item in zip(places, items, strict=True)
    )
    return is_written or _is_referred(situation, word.text)


def _is_referred(situation: Situation, text: str) -> bool:
    """Tell whether the text came from a variable by `${NAME}`: the file does not hold it then."""
    return "${" in text or text in (situation.env or {}).values()


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
