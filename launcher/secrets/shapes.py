"""What a secret looks like by itself: tokens of known issuers, logins in URLs, headers, PEM."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from kimi_serve.schemas.vocabulary import HIDDEN

from .names import is_secret_flag, is_secret_name

Range = tuple[int, int]

_TOKEN = (
    r"(?P<token>(?<![A-Za-z0-9])(?:"
    r"(?i:sk-|gh[oprsu]_|github_pat_|glpat-|nvapi-|xox[a-z]-|AKIA)[A-Za-z0-9_-]{8,}"
    # Names of variables and settings begin so too; a token is random.
    r"|hf_(?:(?=[a-z]{0,40}[A-Z0-9])[A-Za-z0-9]{8,}|[a-z]{20,})"
    r"|ASIA[A-Z0-9]{12,}|AIza[A-Za-z0-9_-]{20,}"
    r"|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?))"
)
_LOGIN = r"://(?P<login>[^/\s]*)@"
_PEM = r"(?P<pem>-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----(?s:.*?)(?:-----END[A-Z0-9 ]*-----|\Z))"
# In prose "basic configuration" is no header.
_HEADER = (
    r"\b(?i:bearer|basic)\s+(?P<header>"
    r"(?=\S{0,40}[0-9=]|\S{0,40}[a-z]\S{0,40}[A-Z])[A-Za-z0-9._~+/=-]{8,})"
)
# `user:password@host` without a scheme; `image:tag@sha256:...` is none.
_PAIR = r"(?<![\w.%+:/@-])[\w.%+-]{1,64}:(?P<pair>[^\s/'\"@:]{1,128})@(?!sha\d)(?=[A-Za-z0-9\[])"
_SHAPE = re.compile("|".join((_TOKEN, _LOGIN, _PEM, _HEADER, _PAIR)))
# In the query of a URL: a name that is secret, or that of a signature.
_QUERY = re.compile(r"[?&;](?P<name>[\w.%-]{1,64})=(?P<value>[^\s&#'\"]+)")
_SIGNED = r"(?i)(.*[-_.])?(sig|signature|sas|jwt|key|pass|pwd)"
_JOINED = re.compile(r"(?<![\w-])(?P<name>--?[A-Za-z][\w-]*)=(?P<value>[^\s,;]+)")

_QUOTED = r"\"(?P<double>(?:[^\"\\]|\\.)*)\"|'(?P<single>[^']*)'"
_ASSIGNED = re.compile(
    rf"(?<![\w-])(?P<name>[\w-]+)[\"']?\s*[=:]\s*(?:(?i:bearer|basic|token)\s+)?"
    rf"(?:{_QUOTED}|(?P<plain>[^\s&]+))"
)
_FLAG = re.compile(
    rf"(?<![\w-])(?P<name>[-\u2010-\u2015\u2212]+[A-Za-z][\w-]*)(?:=|\s+)"
    rf"(?:{_QUOTED}|(?P<plain>\S+))"
)
_ANY_HEADER = re.compile(r"\b(?i:bearer)\s+(?P<plain>\S+)")
_ALONE = re.compile(r"\s*(?P<name>[\w.-]+)\s*=\s*(?P<plain>\S.*)", re.DOTALL)
_EDGES: Final = " \t\r\n'\"[]{}(),;"
_REFERENCE = re.compile(r"\$\{[A-Z_][A-Z0-9_]*\}")


def shaped_in(text: str) -> Iterator[Range]:
    """Give what is a secret whatever stands around it; safe to ask of our own sentences."""
    for match in _SHAPE.finditer(text):
        yield match.span(match.lastgroup or 0)
    for match in _QUERY.finditer(text) if "=" in text else ():
        is_secret = is_secret_name(match["name"]) or re.fullmatch(_SIGNED, match["name"])
        if is_secret and not is_reference(match["value"]):
            yield match.span("value")
    for match in _JOINED.finditer(text):
        if is_secret_flag(match["name"]) and not is_reference(match["value"]):
            yield match.span("value")


def secrets_in(text: str) -> list[Range]:
    """Give the pieces of a text that a user wrote which are secrets, in order, without overlap.

    Also what stands behind the name of one: NAME=VALUE, "name": "value", --flag value.
    """
    return merged([*shaped_in(text), *_named_in(text)])


def _named_in(text: str) -> Iterator[Range]:
    alone = _ALONE.fullmatch(text)
    if alone and is_secret_name(alone["name"]) and not is_reference(alone["plain"]):
        yield alone.span("plain")
    for match in _ASSIGNED.finditer(text):
        if is_secret_name(match["name"]):
            yield from _value_of(match)
    for match in _FLAG.finditer(text):
        if is_secret_flag(match["name"]):
            yield from _value_of(match)
    for match in _ANY_HEADER.finditer(text):
        yield match.span("plain")


def _value_of(match: re.Match[str]) -> Iterator[Range]:
    for group in ("double", "single", "plain"):
        if match[group] and not is_reference(match[group]):
            yield match.span(group)


def is_reference(text: str) -> bool:
    """Say whether a text is `${NAME}`: it names where a secret is."""
    return _REFERENCE.fullmatch(text.strip(_EDGES.replace("{", "").replace("}", ""))) is not None


def parts_of(text: str) -> Iterator[str]:
    """Give the secrets of a text a user wrote, as they may be repeated elsewhere."""
    for start, end in secrets_in(text):
        yield from spelt_parts(text[start:end], is_login=text[:start].endswith("://"))


def spelt_parts(piece: str, *, is_login: bool = False) -> Iterator[str]:
    """Give a secret whole, without what stands around it, and what of it is one alone."""
    yield piece
    yield piece.strip(_EDGES)
    if is_login:
        yield piece.partition(":")[2]
    if "\n" in piece:
        yield from (line.strip() for line in piece.splitlines() if len(line.strip()) >= 16)


def merged(ranges: Iterable[Range]) -> list[Range]:
    """Put ranges in order, overlapping ones together."""
    result: list[Range] = []
    for start, end in sorted(ranges):
        if result and start < result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        elif start < end:
            result.append((start, end))
    return result


def cover(text: str, ranges: Iterable[Range]) -> str:
    """Write "***" for each range; they are in order and do not overlap."""
    pieces: list[str] = []
    last = 0
    for start, end in ranges:
        pieces += [text[last:start], HIDDEN]
        last = end
    return "".join([*pieces, text[last:]])


def mask(text: str) -> str:
    """Cover what looks like a secret in a sentence."""
    return cover(text, merged(shaped_in(text)))
