"""The whole of what one engine process is started with, and how it is watched and stopped."""

from __future__ import annotations

from kimi_serve.schemas.engine_launch import (
    EngineFlag,
    EngineInstall,
    EngineLaunch,
    Readiness,
    Stopping,
)
from kimi_serve.schemas.vocabulary import EngineName

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
# What uvicorn writes before it listens.
_LISTENING_LINE = "Application startup complete."
_SHOWN_LEVELS = ("", "trace", "debug", "info")
_CLIENT_CERTIFICATES = "2"  # ssl.CERT_REQUIRED
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
        ports=() if _socket_file(situation) or _answers_nobody(situation) else (port,),
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
    if _answers_nobody(situation):
        return Readiness("", (), 1, "", 0)
    if common.is_behind_the_first(situation):
        # The first machine alone has clients; a dummy answers here, whatever the rest does.
        return Readiness(_url(flags, host, port), ("/health",), 1, "", 0, required=False)
    if _speaks_grpc(situation):
        line = _READY_LINE if situation.kind == "sglang" and _shows(flags, "--log-level") else ""
        return Readiness(f"tcp://{_local(host)}:{port}", (), 1, line, 1 if line else 0)
    workers = situation.num_workers
    answers = 1 if workers == 1 else max(_FEWEST_ANSWERS, workers)
    path = _socket_file(situation)
    url = f"unix://{path}" if path else _url(flags, host, port)
    if situation.kind == "sglang":
        return Readiness(url, ("/ready", "/health"), answers, _READY_LINE, workers)
    wants_certificate = _value(flags, "--ssl-cert-reqs") == _CLIENT_CERTIFICATES
    if wants_certificate and url.startswith("https") and _shows(flags, "--uvicorn-log-level"):
        return Readiness(url, ("/health",), answers, _LISTENING_LINE, workers)
    return Readiness(url, ("/health",), answers, "", 0)


def _answers_nobody(situation: Situation) -> bool:
    """Say whether nothing listens: vLLM's machines behind the first only compute."""
    return situation.kind == "vllm" and is_headless(situation)


def _socket_file(situation: Situation) -> str:
    """Give where vLLM listens in place of a port, "" where it takes the port."""
    given = situation.flag("--uds") if situation.kind == "vllm" else None
    return "" if given is None else given.text


def _speaks_grpc(situation: Situation) -> bool:
    """Say whether gRPC takes the port of HTTP; with SGLang's --grpc-port it is beside it."""
    flags = ("--grpc",) if situation.kind == "vllm" else ("--smg-grpc-mode", "--grpc-mode")
    return any(map(situation.flag, flags))


def _url(flags: tuple[EngineFlag, ...], host: str, port: int) -> str:
    # One of the two is enough for uvicorn: the key may be in the file of the certificate.
    is_tls = any(_value(flags, name) is not None for name in ("--ssl-keyfile", "--ssl-certfile"))
    return f"{'https' if is_tls else 'http'}://{_local(host)}:{port}"


def _local(host: str) -> str:
    """Give the name at which this machine reaches what listens on `host`, as URLs have it."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)
    return f"[{host}]" if ":" in host else host


def _shows(flags: tuple[EngineFlag, ...], flag: str) -> bool:
    """Say whether the log that this flag rules has lines of level info."""
    return (_value(flags, flag) or "").lower() in _SHOWN_LEVELS


def _value(flags: tuple[EngineFlag, ...], name: str) -> str | None:
    """Give what the command says with a flag, also where no table tells flags from words."""
    words = [word for flag in flags for word in flag.words]
    found = None
    for index, word in enumerate(words):
        if word.startswith(f"{name}="):
            found = word.removeprefix(f"{name}=")
        elif word == name:
            found = words[index + 1] if index + 1 < len(words) else ""
    return found


def _stopping(situation: Situation) -> Stopping:
    """Several SGLang workers cut each other's requests: the first that is done ends all.

    A machine behind the first has no requests to finish, and SGLang's waits there for ever.
    """
    drain_s = situation.settings.server.drain_timeout_s
    if common.is_behind_the_first(situation) or _answers_nobody(situation):
        return Stopping(False, "", drain_s, has_requests=False)
    if situation.kind == "vllm":
        seconds = common.drain_seconds(situation)
        return Stopping(seconds > 0, "", seconds)
    if situation.num_workers > 1 and not _speaks_grpc(situation):
        return Stopping(False, "/v1/loads", drain_s)
    return Stopping(True, "", drain_s)
