"""KS402 port-conflict: which ports one launch takes on one host, and where two are the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from kimi_serve.schemas.findings import Finding
from kimi_serve.schemas.provenance import Origin

from ..resolver.engine_view import ARGS, Given
from ..resolver.situation import Situation
from .given import host, is_loopback, last_word, port, switch, words

_LISTENERS = {
    "none": (),
    "sglang": (
        "--grpc-port",
        "--nccl-port",
        "--encoder-bootstrap-port",
        "--disaggregation-bootstrap-port",
        "--engine-info-bootstrap-port",
        "--smg-http-sidecar-port",
        "--gated-launch-port",
    ),
    "vllm": (
        "--grpc-port",
        "--data-parallel-rpc-port",
        "--data-parallel-supervisor-port",
        "--master-port",
    ),
}
# SGLang's own arithmetic under DP attention: the store, and six sockets behind it.
_RANGE_DISTANCE = 233
_RANGE_LENGTH = 7
_HIGHEST = 65535
_MEETING_PLACES = ("engine.nodes.address", "--dist-init-addr", "--nccl-init-addr")
_GRPC_DISTANCE = 10000
_STATUS = "engine.status_port"


@dataclass(frozen=True, slots=True)
class _Listener:
    port: int
    name: str
    origin: Origin
    path: str


def port_conflicts(situation: Situation) -> Iterator[Finding]:
    """Find ports that are taken twice (KS402)."""
    server = _server(situation)
    taken = [] if server is None else [server]
    for listener in _flags(situation):
        clash = next((each for each in taken if each.port == listener.port), None)
        if clash is not None:
            yield _finding(listener, clash, f"{listener.name} and {clash.name} both take")
        taken.append(listener)
    yield from _status(situation, taken)
    if server is not None and situation.kind == "sglang":
        yield from _derived(situation, server, taken[1:])
    yield from _encoders(situation, server)


def _server(situation: Situation) -> _Listener | None:
    given = port(situation)
    number = _number(given.text)
    if not number:
        return None
    name = "server.port" if given.path == "server.port" else "--port"
    return _Listener(number, name, given.origin, given.path)


def _flags(situation: Situation) -> Iterator[_Listener]:
    for flag in _LISTENERS[situation.kind]:
        word = last_word(situation, flag)
        number = _number(word.text) if word else 0
        if word and number:
            yield _Listener(number, flag, word.origin, ARGS)
    address = _meeting_place(situation)
    number = _number(address.text.rpartition(":")[2]) if address else 0
    if address and number and _is_first_node(situation):
        yield _Listener(number, address.name, address.origin, address.path)


def _status(situation: Situation, taken: list[_Listener]) -> Iterator[Finding]:
    """Find the launcher's own listener beside an engine on the port of another one."""
    number = situation.settings.engine.status_port
    if situation.kind == "none" or not number:
        return
    listener = _Listener(number, _STATUS, situation.origin(_STATUS), _STATUS)
    clash = next((each for each in taken if each.port == number), None)
    if clash is not None:
        yield _finding(listener, clash, f"{_STATUS} and {clash.name} both take")


def _meeting_place(situation: Situation) -> Given | None:
    """Give the address where the nodes of one launch meet."""
    given = situation.given("engine.nodes.address")
    return None if given is None else given.at_value


def _is_first_node(situation: Situation) -> bool:
    rank = situation.given("engine.nodes.rank")
    return rank is None or rank.text == "0"


def _derived(situation: Situation, server: _Listener, others: list[_Listener]) -> Iterator[Finding]:
    if switch(situation, "--smg-grpc-mode") and not last_word(situation, "--grpc-port"):
        number = server.port + _GRPC_DISTANCE
        for other in others:
            if other.port == number:
                yield _finding(other, server, f"{other.name} and the gRPC server both take")
    start = _range_start(situation, server)
    for other in others:
        if start and other.name not in _MEETING_PLACES and 0 <= other.port - start < _RANGE_LENGTH:
            last = start + _RANGE_LENGTH - 1
            message = f"DP attention takes {start} to {last}, and {other.name} wants"
            yield _finding(other, server, message)


def _range_start(situation: Situation, server: _Listener) -> int:
    """Give the first of the ports that DP attention takes, 0 without it."""
    size = last_word(situation, "--attn-dp-size")
    has_dp = switch(situation, "--enable-dp-attention") or (size and _number(size.text) > 1)
    if not has_dp:
        return 0
    address = _meeting_place(situation)
    if address is not None:
        return _number(address.text.rpartition(":")[2]) if _is_first_node(situation) else 0
    above = server.port + _RANGE_DISTANCE
    return above if above <= _HIGHEST else server.port - _RANGE_DISTANCE


def _encoders(situation: Situation, server: _Listener | None) -> Iterator[Finding]:
    own = host(situation).text
    for word in words(situation, "--encoder-urls", "--encoder-register-urls"):
        try:
            url = urlsplit(word.text if "//" in word.text else f"//{word.text}")
            name, number = url.hostname or "", url.port
        except ValueError:
            continue
        is_here = is_loopback(name) or name in (own, "0.0.0.0")
        if server is not None and is_here and number == server.port:
            listener = _Listener(server.port, word.flag, word.origin, ARGS)
            message = f"{word.flag} names this host, and this server ({server.name}) listens on"
            yield _finding(listener, server, message)


def _finding(listener: _Listener, other: _Listener, clause: str) -> Finding:
    related = () if other.origin.kind == "default" else (other.origin,)
    return Finding(
        "KS402",
        "error",
        f"{clause} port {listener.port}",
        listener.origin,
        listener.path,
        help="give each listener a port of its own",
        related=related,
    )


def _number(text: str) -> int:
    """Read a port, 0 for what is none."""
    return int(text) if text.isascii() and text.isdigit() and int(text) <= _HIGHEST else 0
