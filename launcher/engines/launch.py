"""The whole of what one engine process is started with, and how it is watched and stopped."""

from __future__ import annotations

from kimi_serve.schemas.engine_launch import (
    EngineFlag,
    EngineInstall,
    EngineLaunch,
    EngineName,
    Readiness,
    Stopping,
)

from ..resolver.devices import Devices
from ..resolver.situation import Situation
from . import common
from .sglang import write_sglang
from .tail import own_arguments
from .vllm import is_headless, write_vllm
from .writer import Writer, add_own_variables

# `python -m sglang.cli.main serve` prints nothing and exits with 0: it has no main guard.
# vLLM's has one, and its older `vllm.entrypoints.openai.api_server` is deprecated.
_ENTRY_POINTS: dict[EngineName, tuple[str, ...]] = {
    "sglang": ("-m", "sglang.launch_server"),
    "vllm": ("-m", "vllm.entrypoints.cli.main", "serve"),
}
_READY_LINE = "The server is fired up and ready to roll!"
_FEWEST_ANSWERS = 3  # in a row, where every worker has a state of its own


def engine_launch(
    situation: Situation, devices: Devices, install: EngineInstall | None
) -> EngineLaunch | None:
    """Give what an engine is started with, None for the built-in workers."""
    kind = situation.kind
    if kind == "none":
        return None
    writer = write_engine(situation, devices)
    add_own_variables(writer)
    flags = (*writer.flags, *own_arguments(situation, writer.flags))
    python = install.python if install else situation.settings.engine.python or "python"
    host, port = _address(situation)
    return EngineLaunch(
        engine=kind,
        head=(python, *_ENTRY_POINTS[kind]),
        flags=flags,
        variables=tuple(writer.variables),
        host=host,
        port=port,
        readiness=_readiness(situation, flags, host, port),
        stopping=_stopping(situation),
    )


def write_engine(situation: Situation, devices: Devices) -> Writer:
    """Say the settings in the engine's words, without what the user says in them."""
    if situation.kind == "sglang":
        return write_sglang(situation, devices)
    return write_vllm(situation)


def _address(situation: Situation) -> tuple[str, int]:
    """Give where the engine listens, also where engine.args alone say it."""
    server = situation.settings.server
    host, port = situation.given("server.host"), situation.whole(situation.given("server.port"))
    return host.text if host else server.host, server.port if port is None else port


def _readiness(
    situation: Situation, flags: tuple[EngineFlag, ...], host: str, port: int
) -> Readiness:
    url = "" if _is_unasked(situation) else _url(flags, host, port)
    workers = situation.num_workers
    answers = 1 if workers == 1 else max(_FEWEST_ANSWERS, workers)
    if situation.kind == "vllm":
        return Readiness(url, ("/health",), answers if url else 1, "", 0)
    if common.node_count(situation) > 1 and common.node_rank(situation) > 0:
        return Readiness(url, ("/health",), 1, "", 0)
    return Readiness(url, ("/ready", "/health"), answers, _READY_LINE, workers)


def _is_unasked(situation: Situation) -> bool:
    """Say whether nothing answers at the address: no server, a socket file, or gRPC."""
    if situation.kind == "vllm":
        return is_headless(situation) or any(map(situation.flag, ("--headless", "--uds")))
    return any(map(situation.flag, ("--smg-grpc-mode", "--grpc-mode")))


def _url(flags: tuple[EngineFlag, ...], host: str, port: int) -> str:
    scheme = "https" if any(flag.name == "--ssl-keyfile" for flag in flags) else "http"
    host = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _stopping(situation: Situation) -> Stopping:
    """Several SGLang workers cut each other's requests: the first that is done ends all.

    A machine behind the first has no requests to finish, and SGLang's waits there for ever.
    """
    if common.node_count(situation) > 1 and common.node_rank(situation) > 0:
        return Stopping(drains=False, load_path="")
    if situation.kind == "sglang" and situation.num_workers > 1:
        return Stopping(drains=False, load_path="/v1/loads")
    return Stopping(drains=True, load_path="")
