"""What both engines are told in the same way: model, address, media, memory, nodes."""

from __future__ import annotations

import math

from kimi_serve.schemas.fields import ENV_PREFIX, setting_fields
from kimi_serve.schemas.provenance import Origin

from ..resolver.engine_view import OWNED
from ..resolver.situation import Situation
from .writer import Writer

MIB = 2**20
API_KEY = "server.api_key"
DRAIN = "server.drain_timeout_s"

_MODEL_REASONS = {
    "model.revision": "the revision of the hub id",
    "model.tokenizer_path": "the tokenizer is taken from there",
    "model.served_name": "the name that clients ask for",
}


def write_model(writer: Writer) -> None:
    """Say what is served, after the model itself."""
    situation = writer.situation
    for path, reason in _MODEL_REASONS.items():
        value = situation.given(path)
        if situation.is_set(path) and value is not None:
            writer.flag(OWNED[situation.kind][path], path, reason, value.text)
    if situation.settings.model.trust_remote_code:
        writer.flag(
            "--trust-remote-code",
            "model.trust_remote_code",
            "the checkpoint's own code may run in the engine",
        )


def write_address(writer: Writer) -> None:
    """Say where the engine listens; the defaults of the engines differ, ours hold."""
    server = writer.situation.settings.server
    writer.flag("--host", "server.host", "the address to listen on", server.host)
    writer.flag("--port", "server.port", "the port to listen on", str(server.port))


def write_domains(writer: Writer) -> None:
    """Say which hosts images may come from; without the flag an engine fetches from any."""
    path = "media.allowed_domains"
    domains = writer.situation.settings.media.allowed_domains
    if domains:
        reason = "images are fetched from these hosts alone"
        writer.flag("--allowed-media-domains", path, reason, *domains)


def write_memory(writer: Writer) -> None:
    """Say the share of GPU memory, where one is set."""
    path = "gpu.mem_fraction_static"
    fraction = writer.situation.settings.gpu.mem_fraction_static
    if fraction is not None:
        flag = OWNED[writer.situation.kind][path]
        writer.flag(flag, path, "the share for weights and cache", str(fraction))


def write_skip_tokenizer(writer: Writer) -> None:
    """Say that no tokenizer is loaded."""
    path = "tokenizer.skip_init"
    if writer.situation.settings.tokenizer.skip_init:
        writer.flag("--skip-tokenizer-init", path, "no tokenizer is loaded")


def whole_mib(situation: Situation) -> tuple[int, str]:
    """Give media.max_bytes in MiB, and a reason that owns up to the rounding."""
    number = situation.settings.media.max_bytes
    mib = max(1, number // MIB)
    reason = "the most encoded bytes of one image that is fetched"
    if mib * MIB != number:
        way = "down" if mib * MIB < number else "up"
        reason += f"; {number} bytes are no whole MiB, rounded {way}"
    return mib, reason


def take_own_variables_away(writer: Writer) -> None:
    """Keep kimi-serve's own variables from the engine: they may hold secrets."""
    for name in sorted(writer.situation.env or ()):
        if name.startswith(ENV_PREFIX):
            reason = "a variable of kimi-serve, and perhaps a secret"
            writer.variable(name, "", reason, None, origin=Origin("env", name))


def key_variable(situation: Situation) -> str:
    """Name the variable that stands for the API key where it is shown."""
    return situation.loaded.references.get(API_KEY, setting_fields()[API_KEY].env_name)


def api_key(situation: Situation) -> str | None:
    """Give the key in clear."""
    key = situation.settings.server.api_key
    return None if key is None else key.get_secret_value()


def drain_seconds(situation: Situation) -> int:
    """Give the whole seconds to finish requests that vLLM has, also where engine.args say them."""
    said = None if situation.is_set(DRAIN) else situation.whole(situation.given(DRAIN))
    return math.ceil(situation.settings.server.drain_timeout_s) if said is None else said


def rounding(seconds: float) -> str:
    """Own up to a time that is told in whole seconds, in a clause; "" for one that is whole."""
    return "" if seconds == int(seconds) else f", {seconds:g} s rounded up to whole ones"


def is_on(situation: Situation, switch: str) -> bool:
    """Say whether engine.args turn a switch on."""
    given = situation.flag(switch)
    return given is not None and given.text != "false"


def node_rank(situation: Situation) -> int:
    """Give the rank of this machine, also where engine.args alone say it."""
    given = situation.given("engine.nodes.rank")
    return situation.whole(given) or 0


def is_behind_the_first(situation: Situation) -> bool:
    """Say whether this is one of several machines, and not the one that clients ask."""
    return node_count(situation) > 1 and node_rank(situation) > 0


def node_count(situation: Situation) -> int:
    """Give the number of machines, also where engine.args alone say it."""
    given = situation.given("engine.nodes.count")
    return situation.whole(given) or 1
