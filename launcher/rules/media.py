"""What clients may have fetched or read: KS501, KS502, KS503, KS507."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from kimi_serve.schemas.allowed_hosts import HOST_NAME, AllowedHostError, read_allowed_host
from kimi_serve.schemas.findings import Finding
from kimi_serve.schemas.provenance import Origin

from ..resolver.engine_view import ARGS
from ..resolver.situation import Situation
from ..sources.characters import shown
from ..sources.shell_words import replace_fix
from .given import (
    EXTERNAL_PROCESSOR,
    answers_clients,
    host,
    is_public,
    last_word,
    switch,
    words,
)
from .image_work import text_only

_DOMAINS = "media.allowed_domains"
_DIRS = "media.allowed_local_dirs"
_DOMAIN_FLAG = "--allowed-media-domains"
_WORDS = ("true", "false", "yes", "no", "on", "off", "1", "0", "none", "null", "all", "any")
# Whole of these nobody means: configuration, keys, other people's files, the kernel's windows.
_BROAD = ("/boot", "/dev", "/etc", "/home", "/proc", "/run", "/sys", "/usr", "/var")
# Nothing below these is there for clients.
_SYSTEM = (
    *("/boot", "/dev", "/etc", "/proc", "/root", "/run", "/sys", "/var/run"),
    *("/var/lib/containerd", "/var/lib/docker", "/var/lib/kubelet", "/var/mail", "/var/spool"),
)
_KEYS = frozenset(
    (
        *(".ssh", ".aws", ".azure", ".kube", ".gnupg", ".docker", ".config", ".oci", ".pki"),
        *(".gcloud", ".password-store", ".vault", ".secrets", ".git", ".mozilla", ".terraform.d"),
    )
)


@dataclass(frozen=True, slots=True)
class _Entry:
    """One item of a list that ours or the engine's option holds."""

    text: str
    origin: Origin
    path: str
    name: str


def open_media_domains(situation: Situation) -> Iterator[Finding]:
    """Find an engine that fetches whatever URL a client names (KS501)."""
    listens = host(situation)
    if situation.kind == "none" or not is_public(listens.text) or _domains(situation):
        return
    if not answers_clients(situation):
        return
    if text_only(situation) or (situation.checkpoint is not None and not situation.has_images):
        return
    is_written = situation.is_set(_DOMAINS)
    # A processor from outside may take no images, or fetch them by rules of its own.
    is_replaced = situation.variable(EXTERNAL_PROCESSOR) is not None
    yield Finding(
        "KS501",
        "info" if is_replaced else "warning",
        f"{situation.engine_name} listens on {listens.text} and fetches images from any host that "
        f"a client names, also from inside your network: {_DOMAINS} is empty, which does not "
        "close an engine",
        situation.origin(_DOMAINS) if is_written else listens.origin,
        _DOMAINS if is_written else listens.path,
        help=f"name the hosts in {_DOMAINS}; an entry that is never asked for closes it",
    )


def media_domain_form(situation: Situation) -> Iterator[Finding]:
    """Find allowed hosts that can never match the host of a URL (KS502).

    Engines compare hosts whole; the built-in workers read more. A profile that names neither a
    kind of engine nor a checkpoint that is here may be the base of either.
    """
    is_settled = situation.is_set("engine.kind") or situation.checkpoint is not None
    is_ours = situation.kind == "none" and is_settled
    for entry in _domains(situation):
        problem, mended = _judge_ours(entry.text) if is_ours else _judge(entry.text)
        if not problem:
            continue
        why = "hosts are compared whole, so it never matches"
        help = f"write {mended}" if mended else "name each host in full"
        if is_ours:
            why, help = "it never matches", "see the forms in docs/media.md"
        elif situation.kind == "none" and not _judge_ours(entry.text)[0]:
            why = "the built-in workers read that, and to an engine it never matches"
            help += ", or set engine.kind: none where no engine is meant"
        fix = None
        if mended:
            safety: Literal["safe", "unsafe"] = "safe" if _is_same(entry.text, mended) else "unsafe"
            fix = replace_fix(entry.origin, entry.text, _quoted(mended), safety)
        message = f"{shown(entry.text)} in {entry.name} {problem}: {why}"
        yield Finding("KS502", "error", message, entry.origin, entry.path, help=help, fix=fix)


def _judge_ours(text: str) -> tuple[str, str]:
    """Say what the built-in workers cannot read in an entry; "" for nothing."""
    try:
        if "${" not in text:
            read_allowed_host(text)
    except AllowedHostError as error:
        return str(error), ""
    return "", ""


def _is_same(text: str, mended: str) -> bool:
    """Tell whether the built-in workers allow no less and no more after the fix."""
    try:
        return read_allowed_host(text).means_same(read_allowed_host(mended))
    except AllowedHostError:
        return True  # it allowed nothing


def _domains(situation: Situation) -> list[_Entry]:
    own = [
        _Entry(text, situation.loaded.item(_DOMAINS, index), _DOMAINS, _DOMAINS)
        for index, text in enumerate(situation.settings.media.allowed_domains)
    ]
    flags = [
        _Entry(word.text, word.origin, ARGS, word.flag) for word in words(situation, _DOMAIN_FLAG)
    ]
    return own + flags


def _judge(text: str) -> tuple[str, str]:
    """Say what is wrong with an entry, and what was surely meant; "" for nothing."""
    if HOST_NAME.fullmatch(text) or _is_address(text) or "${" in text:
        return "", ""
    if "*" in text:
        return "is a wildcard", ""
    if "," in text:
        return "holds several hosts", ""
    mended = _host_of(text)
    if text != text.strip() or not text.strip():
        return "holds a blank" if text.strip() else "is empty", mended
    if "://" in text:
        return "has a scheme", mended
    if "/" in text:
        return "has a path", mended
    if text.casefold() != text:
        return "has capitals, which a URL's host loses", mended
    if re.search(r":\d+$", text):
        return "has a port", mended
    if text.endswith("."):
        return "ends in a dot", mended
    return "is no host name", ""


def _host_of(text: str) -> str:
    plain = text.strip()
    try:
        name = urlsplit(plain if "//" in plain else f"//{plain}").hostname or ""
    except ValueError:
        return ""
    name = name.rstrip(".")
    return name if HOST_NAME.fullmatch(name) else ""


def _is_address(text: str) -> bool:
    return bool(re.fullmatch(r"[0-9a-f:.]*:[0-9a-f:.]*", text))


def _quoted(text: str) -> str:
    return json.dumps(text)


def local_media_path(situation: Situation) -> Iterator[Finding]:
    """Find folders of local images that hold far more than images (KS503)."""
    own = [
        _Entry(text, situation.loaded.item(_DIRS, index), _DIRS, _DIRS)
        for index, text in enumerate(situation.settings.media.allowed_local_dirs)
    ]
    word = last_word(situation, "--allowed-local-media-path")
    flags = [_Entry(word.text, word.origin, ARGS, word.flag)] if word else []
    for entry in own + flags:
        problem = _too_much(entry.text)
        if problem:
            yield Finding(
                "KS503",
                "error",
                f"{entry.name}: {problem}",
                entry.origin,
                entry.path,
                help="name one folder that holds images and nothing else",
            )


def _too_much(text: str) -> str:
    last = os.path.basename(os.path.normpath(text)).casefold() if text else ""
    if last in _WORDS:
        return f"{shown(last)} is a word, and a folder is meant"
    whole = re.sub("^//+", "/", os.path.normpath(text)) if text else ""
    if whole == "/":
        return "/ lets every client read every file that the server can read"
    # As text: whose home `~` is, and where it lies, is another matter on every machine.
    if re.fullmatch(r"~[^/]*|/root|/home/[^/]+", whole):
        return f"{shown(text)} is a home directory: keys and tokens lie in it"
    if whole in _BROAD:
        return f"{shown(text)} is a folder of the system, with far more than images in it"
    above = next((folder for folder in _SYSTEM if whole.startswith(f"{folder}/")), "")
    if above:
        return f"{shown(text)} lies below {above}, where configuration, keys and devices are"
    keys = next((name for name in whole.split("/") if name.casefold() in _KEYS), "")
    if keys:
        return f"{shown(text)} lies in a folder {keys}, where keys and tokens are"
    return ""


def trusted_content_hashes(situation: Situation) -> Iterator[Finding]:
    """Find a public server that believes its callers about the content of media (KS507)."""
    argument = switch(situation, "--trust-mm-content-hashes")
    listens = host(situation)
    if argument is None or not is_public(listens.text) or not answers_clients(situation):
        return
    yield Finding(
        "KS507",
        "warning",
        f"{argument.spelling} takes a caller's hash for the content, and others reach "
        f"{listens.text}: with a wrong hash one caller gets, or gives another, the features of a "
        "different image",
        situation.loaded.item(ARGS, argument.position),
        ARGS,
        help="remove it, or let trusted callers alone reach the server",
        related=(listens.origin,) if listens.origin.kind != "default" else (),
    )


RULES: tuple[Callable[[Situation], Iterator[Finding]], ...] = (
    open_media_domains,
    media_domain_form,
    local_media_path,
    trusted_content_hashes,
)
