"""What each setting becomes for each engine, and what has no equivalent: data for people.

The modules that write a command are `sglang` and `vllm`; a test holds them to this table.
"""

from __future__ import annotations

from collections.abc import Mapping

from kimi_serve.schemas.engine_names import HEALTH_TIMEOUT, IPC_SWITCH, OLD_SWITCH, SWITCH, VISIBLE
from kimi_serve.schemas.vocabulary import ENGINES, EngineName

Table = Mapping[str, Mapping[str, tuple[str, ...]]]

EQUIVALENTS: Table = {
    "sglang": {
        "model.path": ("--model-path",),
        "model.revision": ("--revision",),
        "model.tokenizer_path": ("--tokenizer-path",),
        "model.served_name": ("--served-model-name",),
        "model.trust_remote_code": ("--trust-remote-code",),
        "server.host": ("--host",),
        "server.port": ("--port",),
        "server.api_key": ("--api-key",),
        "tokenizer.worker_num": (
            "--tokenizer-worker-num",
            HEALTH_TIMEOUT,
        ),
        "tokenizer.skip_init": ("--skip-tokenizer-init",),
        "image.force_cpu_preprocessing": (
            SWITCH,
            OLD_SWITCH,
            IPC_SWITCH,
            "--mm-feature-transport",
            "--mm-processor-worker-num",
            "--mm-io-worker-num",
        ),
        "image.max_per_request": ("--limit-mm-data-per-request",),
        "media.allowed_domains": ("--allowed-media-domains",),
        "media.max_bytes": ("--media-url-max-file-size-mb",),
        "gpu.ids": (VISIBLE,),
        "gpu.mem_fraction_static": ("--mem-fraction-static",),
        "engine.nodes.count": ("--nnodes",),
        "engine.nodes.rank": ("--node-rank",),
        "engine.nodes.address": ("--dist-init-addr",),
        "log.level": ("--log-level",),
    },
    "vllm": {
        "model.path": ("the first word behind serve",),
        "model.revision": ("--revision",),
        "model.tokenizer_path": ("--tokenizer",),
        "model.served_name": ("--served-model-name",),
        "model.trust_remote_code": ("--trust-remote-code",),
        "server.host": ("--host",),
        "server.port": ("--port",),
        "server.api_key": ("VLLM_API_KEY",),
        "server.drain_timeout_s": ("--shutdown-timeout",),
        "tokenizer.worker_num": ("--api-server-count", "NUMBA_NUM_THREADS"),
        "tokenizer.skip_init": ("--skip-tokenizer-init",),
        "image.force_cpu_preprocessing": ("--mm-processor-device",),
        "image.max_pixels": ("VLLM_MAX_IMAGE_PIXELS",),
        "image.max_per_request": ("--limit-mm-per-prompt",),
        "media.allowed_domains": ("--allowed-media-domains",),
        "media.allowed_local_dirs": ("--allowed-local-media-path",),
        "media.max_bytes": ("VLLM_MAX_MEDIA_DOWNLOAD_SIZE_MB",),
        "media.timeout_s": ("VLLM_IMAGE_FETCH_TIMEOUT",),
        "media.max_redirects": ("VLLM_MEDIA_URL_ALLOW_REDIRECTS",),
        "gpu.ids": (VISIBLE,),
        "gpu.mem_fraction_static": ("--gpu-memory-utilization",),
        "engine.nodes.count": ("--nnodes",),
        "engine.nodes.rank": ("--node-rank", "--headless"),
        "engine.nodes.address": ("--master-addr", "--master-port"),
        "log.level": ("VLLM_LOGGING_LEVEL", "--uvicorn-log-level"),
    },
}

_OWN = "the engine's own image processor decides that"
_QUEUE = "the engine bounds its own queue in other ways"
_ONE_PORT = "the engine shows everything on one port"
_BOTH = {
    "image.dtype": _OWN,
    "image.formats": "the engine takes every format that Pillow reads",
    "image.cache_bytes": "the engine keeps a cache of its own",
    "image.timeout_s": _OWN,
    "tokenizer.timeout_s": "the engine sets no time for one text",
    "tokenizer.max_text_bytes": "the engine bounds a text by the model's context",
    "tokenizer.worker_memory_mib": "the engine sets no limit for one worker",
    "gpu.worker_budget_mib": "the engine sets no limit for one worker",
    "server.max_queued_requests": _QUEUE,
    "server.admin_host": _ONE_PORT,
    "server.admin_port": _ONE_PORT,
    "server.previous_api_key": "the engine has one key",
    "server.max_body_bytes": "the engine takes bodies of any size",
    "server.max_queued_bytes": _QUEUE,
    "server.max_response_bytes": "the engine answers with text",
    "server.request_timeout_s": "the engine sets no time for one request",
    "server.start_timeout_s": "engine.startup_timeout_s is the time that an engine has",
}
WITHOUT: Mapping[str, Mapping[str, str]] = {
    "sglang": _BOTH
    | {
        "image.policy": _OWN,
        "image.background": _OWN,
        "image.max_pixels": "no limit of the engine holds for every model",
        "media.allowed_local_dirs": "the engine has no list of folders",
        "media.timeout_s": "no flag of the engine bounds a fetch",
        "media.max_redirects": "no flag of the engine bounds redirects",
    },
    "vllm": _BOTH
    | {
        "image.policy": "it turns images upright and puts transparency on white, and no more",
        "image.background": "transparency is put on white; see --media-io-kwargs",
    },
}
"""Settings that an engine cannot be told, each with what it does instead."""


def engine_words(path: str) -> list[tuple[EngineName, str]]:
    """Say what the setting at `path` becomes for each engine; nothing for what only we read."""
    found: list[tuple[EngineName, str]] = []
    for kind in ENGINES:
        if path in EQUIVALENTS[kind]:
            found.append((kind, ", ".join(EQUIVALENTS[kind][path])))
        elif path in WITHOUT[kind]:
            found.append((kind, f"nothing: {WITHOUT[kind][path]}"))
    return found
