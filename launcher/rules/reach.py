"""What a setting does, or cannot do, on the engine that is started.

KS202 no-effect-without: the engine has nothing that says it. KS203 unsupported-combination:
engine.env or engine.args say what a setting says already. KS104 invalid-value: a port that nobody
would know, an address without a port.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kimi_serve.schemas.engine_names import OLD_SWITCH, SWITCH
from kimi_serve.schemas.findings import Finding

from ..engines.common import API_KEY
from ..engines.equivalents import WITHOUT
from ..engines.launch import write_engine
from ..engines.vllm import is_headless
from ..resolver.devices import decide_devices
from ..resolver.engine_view import ENV, Given
from ..resolver.situation import Situation
from ..sources.characters import shown
from .given import answers_clients
from .wording import at, on

_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^:\[\]\s/]+):([0-9]{1,5})")
_LOCAL = "media.allowed_local_dirs"
_NODES = "engine.nodes"


def settings_without_equivalent(situation: Situation) -> Iterator[Finding]:
    """Say which settings the engine cannot be told (KS202)."""
    if situation.kind == "none":
        return
    serves = answers_clients(situation)
    for path, why in WITHOUT[situation.kind].items():
        # What a machine behind the first does not do, the settings of all machines may say.
        if serves and situation.is_set(path) and situation.has_images:
            message = f"{path} has no effect on {situation.engine_name}: {why}"
            yield on(situation, "KS202", path, message)
    folders = situation.settings.media.allowed_local_dirs
    if situation.kind == "vllm" and serves and len(folders) > 1:
        message = (
            f"{_LOCAL} has no effect on {situation.engine_name}: it takes one folder, not "
            f"{len(folders)}, and gets none"
        )
        yield on(situation, "KS202", _LOCAL, message, "name one folder")


def unsaid_flags(situation: Situation) -> Iterator[Finding]:
    """Say which settings this release of the engine has no flag for (KS202)."""
    if situation.kind == "none" or situation.table is None:
        return
    for unsaid in write_engine(situation, decide_devices(situation)).unsaid:
        message = f"{unsaid.path} has no effect: {situation.engine_name} has no {unsaid.name}"
        yield on(situation, "KS202", unsaid.path, message)


def owned_variables(situation: Situation) -> Iterator[Finding]:
    """Say which variables of engine.env contradict what the settings make of them (KS203)."""
    if situation.kind == "none":
        return
    own = situation.settings.engine.env
    for variable in write_engine(situation, decide_devices(situation)).variables:
        text = own.get(variable.name)
        # The two names of the switch have a rule of their own (KS601).
        if text is None or not variable.path or variable.name in (SWITCH, OLD_SWITCH):
            continue
        if text == variable.value or "${" in text or not situation.is_set(variable.path):
            continue
        entry = situation.loaded.entry(ENV, variable.name)
        given = Given(variable.name, text, entry.name, ENV, entry.value)
        if variable.path == API_KEY or variable.secret:
            message = f"{variable.name} says again what {variable.path} says"
        else:
            message = f"{variable.name}={shown(text)} contradicts {variable.path}"
        help = f"remove it: {variable.path} becomes that variable"
        yield at("KS203", given, message, help, related=(variable.origin,))


def unknown_port(situation: Situation) -> Iterator[Finding]:
    """Refuse a port that the kernel chooses: nobody could ask the engine (KS104)."""
    given = situation.given("server.port")
    if situation.kind != "none" and given is not None and given.text == "0":
        message = f"{given.name} 0: {situation.kind} would listen where nobody can find it"
        yield at("KS104", given.at_value, message, "write a number from 1 to 65535")


def node_settings(situation: Situation) -> Iterator[Finding]:
    """Say what is wrong with engine.nodes alone (KS104, KS202, KS203)."""
    nodes = situation.settings.engine.nodes
    for name in ("count", "rank", "address"):
        path = f"{_NODES}.{name}"
        if situation.kind == "none" and situation.is_set(path):
            message = f"{path} has no effect: engine.kind is none, and no engine is started"
            yield on(situation, "KS202", path, message, "set engine.kind to sglang or vllm")
    if situation.kind == "none":
        return
    path = f"{_NODES}.address"
    if nodes.address is not None and not _is_address(nodes.address):
        message = f"{path} must be host:port, not {shown(nodes.address)}"
        yield on(situation, "KS104", path, message, "write the first machine's name and a port")
    elif nodes.count == 1 and nodes.address is not None:
        message = f"{path} has no effect: {_NODES}.count is 1"
        yield on(situation, "KS202", path, message, f"set {_NODES}.count")
    servers = situation.flag("--api-server-count")
    if situation.kind == "vllm" and is_headless(situation) and servers is not None:
        number = situation.whole(servers)
        if number:
            message = f"{servers.name} {number} is refused on a machine that answers no clients"
            yield at("KS203", servers, message, "remove it, and set tokenizer.worker_num")


def _is_address(text: str) -> bool:
    match = _ADDRESS.fullmatch(text)
    return "${" in text or (match is not None and 0 < int(match[2]) <= 65535)


RULES = (
    settings_without_equivalent,
    unsaid_flags,
    owned_variables,
    unknown_port,
    node_settings,
)
