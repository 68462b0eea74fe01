"""What several rules ask of a situation: flags and their values, the address, the place."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass

from kimi_serve.schemas.provenance import Origin

from ..engine_command import EngineArgument
from ..engines import common
from ..engines.vllm import is_headless
from ..resolver.engine_view import ENV, Given, value_origin_of
from ..resolver.situation import Situation

# Names a package that replaces SGLang's image processors: what the tables say is void then.
EXTERNAL_PROCESSOR = "SGLANG_EXTERNAL_MM_PROCESSOR_PACKAGE"
# Numbers of any base, with fewer dots than four.
_SHORT_ADDRESS = re.compile(r"(0[xX][0-9a-fA-F]+|[0-9]+)(\.(0[xX][0-9a-fA-F]+|[0-9]+)){0,3}")
# Set by container runtimes and orchestrators, and by nobody on a plain host.
_CONTAINER_VARIABLES = ("KUBERNETES_SERVICE_HOST", "container", "NVIDIA_VISIBLE_DEVICES")


@dataclass(frozen=True, slots=True)
class Word:
    """One value of a flag in `engine.args`: its text, the flag in full, where it stands."""

    text: str
    flag: str
    origin: Origin
    argument: EngineArgument


def flag_name(argument: EngineArgument) -> str:
    """Give the flag under its own name, "" for a word and for an unknown flag."""
    return argument.flag.flag if argument.flag else ""


def words(situation: Situation, *flags: str) -> Iterator[Word]:
    """Give every value of these flags; of all flags when none is named."""
    for argument in situation.arguments:
        name = flag_name(argument)
        if name and (not flags or name in flags):
            for index, text in enumerate(argument.values):
                yield Word(text, name, value_origin(situation, argument, index), argument)


def last_word(situation: Situation, *flags: str) -> Word | None:
    """Give the value that counts: an engine takes the last."""
    found = list(words(situation, *flags))
    return found[-1] if found else None


def switch(situation: Situation, flag: str) -> EngineArgument | None:
    """Give the argument that turns a switch on, None when it is off."""
    found = [argument for argument in situation.arguments if flag_name(argument) == flag]
    return found[-1] if found and not found[-1].negated else None


def value_origin(situation: Situation, argument: EngineArgument, index: int = 0) -> Origin:
    """Say where a value of an argument stands."""
    return value_origin_of(situation.loaded, argument, index)


def config_argument(situation: Situation) -> EngineArgument | None:
    """Give the argument that names a file with more arguments, which the engine will open."""
    for argument in situation.arguments:
        is_alone = not argument.inline and not argument.abbreviated and argument.values
        if flag_name(argument) == "--config" and is_alone:
            return argument
    return None


def host(situation: Situation) -> Given:
    """Give the address that the server listens on."""
    return _or_default(situation, "server.host", situation.settings.server.host)


def port(situation: Situation) -> Given:
    """Give the port that the server listens on."""
    return _or_default(situation, "server.port", str(situation.settings.server.port))


def _or_default(situation: Situation, path: str, text: str) -> Given:
    given = situation.given(path)
    if given is None:
        return Given(path, text, situation.origin(path), path)
    return given.at_value


def answers_clients(situation: Situation) -> bool:
    """Tell whether this machine serves: of several the first one does, the others compute."""
    if situation.kind == "vllm":
        return not is_headless(situation)
    return not (situation.kind == "sglang" and common.is_behind_the_first(situation))


def is_loopback(name: str) -> bool:
    """Tell whether only this host, or this container, reaches an address."""
    address = _address(name)
    return name.casefold() == "localhost" or (address is not None and address.is_loopback)


def is_public(name: str) -> bool:
    """Tell whether others reach an address; a name that only a resolver knows counts as no."""
    address = _address(name)
    return address is not None and not address.is_loopback


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Read an address as sockets do: `0`, `0x0` and `127.1` are addresses too, "" is all."""
    if not name:
        return ipaddress.IPv4Address(0)
    try:
        address = ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return _short_address(name)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _short_address(name: str) -> ipaddress.IPv4Address | None:
    if not _SHORT_ADDRESS.fullmatch(name):
        return None
    try:
        return ipaddress.IPv4Address(socket.inet_aton(name))
    except OSError:
        return None


def variables(situation: Situation) -> dict[str, str]:
    """Give what the engine will find in its environment, as far as it is known."""
    return {given.name: given.text for given in situation.variables()}


def container_sign(situation: Situation) -> str:
    """Name what says that this runs in a container, "" where nothing does."""
    found = variables(situation)
    return next((name for name in _CONTAINER_VARIABLES if found.get(name)), "")


def variable_value_origin(situation: Situation, name: str) -> Origin:
    """Say who set a variable of the engine: its value, where that has a place."""
    if name in situation.settings.engine.env:
        return situation.loaded.entry(ENV, name).value
    return Origin("env", name)
