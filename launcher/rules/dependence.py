"""What does nothing without something else: KS202 no-effect-without."""

from __future__ import annotations

from collections.abc import Iterator

from kimi_serve.schemas.engine_facts import read_boolean
from kimi_serve.schemas.engine_names import IO_WORKERS
from kimi_serve.schemas.findings import Finding

from ..resolver.situation import FLAG, Situation
from .given import answers_clients, config_argument
from .image_work import text_only, workers_prepare_images
from .transport import FEATURE_CACHE, gpu_transport
from .wording import at, on

_GRAPH_SWITCH = "SGLANG_VIT_ENABLE_CUDA_GRAPH"
_GRAPH_SIZES = (
    "SGLANG_KIMI_K3_VIT_CUDA_GRAPH_CACHE_CAPACITY",
    "SGLANG_KIMI_K3_VIT_CUDA_GRAPH_MAX_SEQLEN",
    "SGLANG_KIMI_K3_VIT_CUDA_GRAPH_MIN_HITS",
)


def unused_findings(situation: Situation) -> Iterator[Finding]:
    """Say which settings the built-in workers do not use."""
    if situation.kind != "none":
        return
    settings = situation.settings
    if settings.model.trust_remote_code:
        message = "model.trust_remote_code has no effect: the built-in workers run no remote code"
        yield on(situation, "KS202", "model.trust_remote_code", message, severity="info")
    for path, is_set in (
        ("engine.args", bool(settings.engine.args)),
        ("engine.env", bool(settings.engine.env)),
    ):
        if is_set:
            message = f"{path} has no effect: engine.kind is none, and no engine is started"
            yield on(situation, "KS202", path, message, "set engine.kind to sglang or vllm")


def sglang_findings(situation: Situation) -> Iterator[Finding]:
    """Say which options of SGLang need another one."""
    if situation.kind != "sglang":
        return
    pool = situation.variable(FEATURE_CACHE)
    if pool is not None and gpu_transport(situation) is None:
        message = f"{pool.name} has no effect: the pool belongs to the GPU feature transports"
        yield at("KS202", pool, message, "remove it, or set --mm-feature-transport")
    switch = situation.variable(_GRAPH_SWITCH)
    for name in _GRAPH_SIZES:
        size = situation.variable(name)
        if size is not None and (switch is None or read_boolean("env-bool", switch.text) is False):
            message = f"{name} has no effect without {_GRAPH_SWITCH}=1"
            yield at("KS202", size, message, f"remove it, or set {_GRAPH_SWITCH}")
    threads = situation.variable(IO_WORKERS)
    number = situation.flag("--mm-io-worker-num")
    if threads is not None and number is not None and number.text != "0":
        message = f"{threads.name} has no effect beside {number.name}, which wins"
        related = (number.at_value.origin,)
        yield at("KS202", threads, message, "remove it", related=related)
    yield from _workers_findings(situation)
    yield from _threads_findings(situation)


def _workers_findings(situation: Situation) -> Iterator[Finding]:
    """Say where the number of workers is taken and not used."""
    workers = situation.given("tokenizer.worker_num") if answers_clients(situation) else None
    if workers is None or situation.num_workers < 2:
        return
    for flag in ("--smg-grpc-mode", "--encoder-only"):
        mode = situation.flag(flag)
        if mode is not None:
            message = (
                f"{workers.name} {workers.text} has no effect with {flag}: that server starts no "
                "tokenizer workers"
            )
            yield at("KS202", workers, message, "remove one", related=(mode.origin,))
    refresh = situation.flag("--enable-ssl-refresh")
    if refresh is not None:
        message = f"{refresh.name} has no effect with {workers.text} tokenizer workers"
        yield at(
            "KS202",
            refresh,
            message,
            "restart on new certificates",
            related=(workers.at_value.origin,),
        )


def _threads_findings(situation: Situation) -> Iterator[Finding]:
    """Say that the engine leaves one preprocessing thread although nothing is on the GPU."""
    forced, row = situation.forced, situation.row
    is_honoured = row is not None and row.flag == "honoured"
    if forced is None or not is_honoured or not workers_prepare_images(situation):
        return
    threads = situation.flag("--mm-processor-worker-num")
    if threads is not None and situation.whole(threads) == 0:
        message = (
            "the engine keeps one preprocessing thread a worker on a CUDA host, as if the images "
            f"were on the GPU: it does not look at {FLAG} there"
        )
        help = "remove it: with the flag --mm-processor-worker-num 2 is said"
        yield at("KS202", threads.at_value, message, help, severity="info")


def vllm_findings(situation: Situation) -> Iterator[Finding]:
    """Say which options of vLLM need another one."""
    if situation.kind != "vllm":
        return
    parser, auto = situation.flag("--tool-call-parser"), "--enable-auto-tool-choice"
    enabled = situation.flag(auto)
    is_off = enabled is None and config_argument(situation) is None
    if parser is not None and (is_off or (enabled is not None and enabled.text == "false")):
        yield at("KS202", parser, f"{parser.name} has no effect without {auto}", f"add {auto}")
    mode, off = situation.flag("--mm-encoder-tp-mode"), text_only(situation)
    if mode is not None and off is not None:
        message = f"{mode.name} has no effect: {off.name} allows no image"
        yield at("KS202", mode, message, "remove it", related=(off.at_value.origin,))
    yield from _cache_findings(situation)
    yield from _servers_findings(situation)


def _cache_findings(situation: Situation) -> Iterator[Finding]:
    servers = situation.given("tokenizer.worker_num") if answers_clients(situation) else None
    cache = situation.flag("--mm-processor-cache-gb")
    if servers is None or situation.num_workers < 2 or (cache is not None and cache.text == "0"):
        return
    message = (
        f"the cache of processed images does not reach the engine with {servers.text} API servers: "
        "whole tensors travel on every request"
    )
    help = "set --mm-processor-cache-gb 0, or run one API server"
    yield at("KS202", servers.at_value, message, help, severity="info")


def _servers_findings(situation: Situation) -> Iterator[Finding]:
    """Say what the workers of vLLM are, and what becomes of all when one dies."""
    servers = situation.given("tokenizer.worker_num") if answers_clients(situation) else None
    if servers is None or situation.num_workers < 2 or situation.settings.engine.restart != "never":
        return
    message = (
        f"{servers.text} workers are {servers.text} API servers of {situation.engine_name}: when "
        "one of them dies, it ends the whole deployment"
    )
    help = "set engine.restart: on-failure"
    yield at("KS202", servers.at_value, message, help, severity="info")


RULES = (unused_findings, sglang_findings, vllm_findings)
