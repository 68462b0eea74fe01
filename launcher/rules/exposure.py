"""Addresses, paths and networks: KS401 to KS405."""

from __future__ import annotations

import ipaddress
import os
import shutil
from collections.abc import Callable, Iterator

from kimi_serve.schemas.findings import Finding
from kimi_serve.schemas.provenance import Origin

from ..engine_command import EngineArgument
from ..resolver.engine_view import ARGS
from ..resolver.situation import Situation
from ..sources.characters import shown
from ..sources.environment import is_service_link
from ..sources.shell_words import replace_fix
from .given import (
    answers_clients,
    container_sign,
    flag_name,
    host,
    is_loopback,
    is_public,
    variable_value_origin,
    variables,
    words,
)
from .ports import port_conflicts

_PATH_ENDINGS = ("-path", "-dir", "-file", "-keyfile", "-certfile", "-ca-certs", "--config")
_HUB_FLAGS = (
    "--model-path", "--model", "--tokenizer-path", "--tokenizer", "--speculative-draft-model-path",
)  # fmt: skip
_URL_FLAGS = ("--fastapi-root-path", "--root-path")
# What an engine reads at its start; what it writes, it makes itself.
_READ_FLAGS = (
    "--allowed-local-media-path", "--chat-template", "--config", "--ssl-ca-certs", "--ssl-certfile",
    "--ssl-keyfile",
)  # fmt: skip
_TEMPLATE_ENDINGS = (".jinja", ".jinja2", ".j2", ".json")


def loopback_in_container(situation: Situation) -> Iterator[Finding]:
    """Find a server in a container that listens for its own container only (KS401)."""
    sign = container_sign(situation)
    given = host(situation)
    if not sign or not is_loopback(given.text) or not answers_clients(situation):
        return
    default = "the default " if given.origin.kind == "default" else ""
    yield Finding(
        "KS401",
        "warning",
        f"{default}{given.text} is reached from inside the container only, and {sign} says that "
        "this runs in one: a published port leads nowhere",
        given.origin,
        given.path,
        help="set server.host: 0.0.0.0, and server.api_key with it",
        fix=replace_fix(given.origin, given.text, "0.0.0.0", "unsafe"),
    )


def unusable_paths(situation: Situation) -> Iterator[Finding]:
    """Find paths of the engine that are relative to nobody knows what (KS403)."""
    sign = container_sign(situation)
    if not sign:
        return
    for word in words(situation):
        if is_relative_path(word.argument, word.text):
            yield Finding(
                "KS403",
                "warning",  # the image may have a folder that is meant
                f"{word.flag} {shown(word.text)} is relative to the folder that kimi-serve is "
                f"started in, and {sign} says that this runs in a container: that is a folder "
                "of the image",
                word.origin,
                ARGS,
                help="write the whole path, as it is inside the container",
            )


def is_relative_path(argument: EngineArgument, text: str) -> bool:
    """Tell whether a value of an argument is a path that begins in some folder."""
    flag, facts = flag_name(argument), argument.flag
    if not text or os.path.isabs(text) or text.startswith(("~", "{")) or "://" in text:
        return False
    if flag in _HUB_FLAGS:
        return text.startswith(("./", "../"))
    if flag == "--chat-template":
        return text.endswith(_TEMPLATE_ENDINGS) or text.startswith(("./", "../"))
    if facts is None or facts.type != "str":
        return False
    return flag.endswith(_PATH_ENDINGS) and flag not in _URL_FLAGS


def missing_files(situation: Situation) -> Iterator[Finding]:
    """Find files that are not there, once somebody looks at this host (KS403)."""
    if situation.kind == "none" or situation.hardware is None:
        return
    python = situation.settings.engine.python
    if python is not None and shutil.which(python) is None and not os.path.exists(python):
        origin = situation.origin("engine.python")
        yield _missing("engine.python", python, origin, "engine.python")
    for word in words(situation, *_READ_FLAGS):
        is_path = os.path.isabs(word.text) and not is_relative_path(word.argument, word.text)
        if is_path and not os.path.exists(word.text):
            yield _missing(word.flag, word.text, word.origin, ARGS)


def _missing(name: str, path: str, origin: Origin, setting: str) -> Finding:
    message = f"{name}: {shown(path)} is not on this host"
    return Finding("KS403", "error", message, origin, setting, help="check spelling and mounts")


def service_links(situation: Situation) -> Iterator[Finding]:
    """Find variables that Kubernetes made of a Service's name and the engine reads (KS404)."""
    table = situation.table
    if table is None:
        return
    found = variables(situation)
    for name in sorted(found):
        if is_service_link(name, found) and table.env(name):
            yield Finding(
                "KS404",
                "warning",
                f"Kubernetes set {name} for a Service, and {situation.engine_name} reads it as a "
                "setting of its own",
                variable_value_origin(situation, name),
                help="rename the Service, or set enableServiceLinks: false in the pod",
            )


def captured_loopback(situation: Situation) -> Iterator[Finding]:
    """Find a proxy that catches the requests of an engine to itself (KS405)."""
    if situation.kind != "sglang":
        return
    found = variables(situation)
    names = ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY")
    proxy = next((name for name in names if found.get(name)), "")
    spared = found.get("no_proxy") or found.get("NO_PROXY") or ""
    own = host(situation).text
    if not proxy or _is_spared(_probed(own), spared) or _is_spared(own, spared):
        return
    setter = situation.variable(proxy)
    assert setter is not None
    yield Finding(
        "KS405",
        "warning",
        f"{proxy} is set and NO_PROXY does not name {_probed(own)}: the engine's own start-up "
        "request goes to the proxy, which refuses it",
        setter.origin,
        setter.path,
        help="set NO_PROXY and no_proxy to localhost,127.0.0.1,0.0.0.0",
    )


def _probed(own: str) -> str:
    """Give the address that the engine asks itself at."""
    return own if is_loopback(own) or not is_public(own) else "127.0.0.1"


def _is_spared(name: str, spared: str) -> bool:
    for entry in (part.strip() for part in spared.split(",")):
        if entry in ("*", name) or (entry and name.endswith(f".{entry.lstrip('.')}")):
            return True
        try:
            if ipaddress.ip_address(name) in ipaddress.ip_network(entry, strict=False):
                return True
        except ValueError:
            continue
    return False


RULES: tuple[Callable[[Situation], Iterator[Finding]], ...] = (
    loopback_in_container,
    port_conflicts,
    unusable_paths,
    missing_files,
    service_links,
    captured_loopback,
)
