"""What each setting must be to the engine: the one table of the proof, setting -> engine field."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kimi_serve.schemas.settings import Settings

from .cases import Engine


@dataclass(frozen=True)
class Said:
    """A field of the engine's arguments, or a variable, and what a setting makes of it.

    `value` gives None where the setting says nothing there. `always` marks what counts also where
    nobody set it; the rest is left to the engine then.
    """

    name: str
    value: Callable[[Settings], Any]
    always: bool = False
    variable: bool = False


def _mib(settings: Settings) -> int:
    """Whole MiB, down as far as one: no larger image gets in than the setting allows."""
    return max(1, settings.media.max_bytes // 2**20)


def _key(settings: Settings) -> str | None:
    key = settings.server.api_key
    return None if key is None else key.get_secret_value()


def _is_headless(settings: Settings) -> bool:
    return settings.engine.nodes.rank > 0


def _unless_headless(value: Callable[[Settings], Any]) -> Callable[[Settings], Any]:
    """vLLM's further machines answer no clients, so they are told nothing about serving."""
    return lambda settings: None if _is_headless(settings) else value(settings)


def _forced(value: Any) -> Callable[[Settings], Any]:
    return lambda settings: value if settings.image.force_cpu_preprocessing else None


def _address(part: int) -> Callable[[Settings], Any]:
    def value(settings: Settings) -> Any:
        address = settings.engine.nodes.address
        if address is None:
            return None
        host, _, port = address.rpartition(":")
        return (host.strip("[]"), int(port))[part]

    return value


_SHARED: Mapping[str, tuple[Said, ...]] = {
    "model.path": (Said("model_path", lambda s: s.model.path, always=True),),
    "model.revision": (Said("revision", lambda s: s.model.revision),),
    "model.tokenizer_path": (Said("tokenizer_path", lambda s: s.model.tokenizer_path),),
    "model.served_name": (Said("served_model_name", lambda s: s.model.served_name),),
    "model.trust_remote_code": (
        Said("trust_remote_code", lambda s: s.model.trust_remote_code, always=True),
    ),
    "tokenizer.skip_init": (
        Said("skip_tokenizer_init", lambda s: s.tokenizer.skip_init, always=True),
    ),
    "media.allowed_domains": (
        Said("allowed_media_domains", lambda s: list(s.media.allowed_domains) or None),
    ),
    # For the driver, which alone reads it.
    "gpu.ids": (Said("CUDA_VISIBLE_DEVICES", lambda s: ",".join(s.gpu.ids or ()), variable=True),),
    "engine.nodes.count": (Said("nnodes", lambda s: s.engine.nodes.count, always=True),),
    "engine.nodes.rank": (Said("node_rank", lambda s: s.engine.nodes.rank, always=True),),
}
SAID: Mapping[Engine, Mapping[str, tuple[Said, ...]]] = {
    "sglang": dict(_SHARED)
    | {
        "server.host": (Said("host", lambda s: s.server.host, always=True),),
        "server.port": (Said("port", lambda s: s.server.port, always=True),),
        "server.api_key": (Said("api_key", _key),),
        "tokenizer.worker_num": (
            Said("tokenizer_worker_num", lambda s: s.tokenizer.worker_num, always=True),
        ),
        "image.force_cpu_preprocessing": (
            Said(
                "SGLANG_FORCE_CPU_IMAGE_PREPROCESSING",
                lambda s: s.image.force_cpu_preprocessing,
                always=True,
                variable=True,
            ),
            Said("mm_feature_transport", _forced("cpu")),
        ),
        "image.max_per_request": (
            Said("limit_mm_data_per_request", lambda s: {"image": s.image.max_per_request}),
        ),
        "media.max_bytes": (Said("media_url_max_file_size_mb", _mib),),
        "gpu.mem_fraction_static": (
            Said("mem_fraction_static", lambda s: s.gpu.mem_fraction_static),
        ),
        "engine.nodes.address": (Said("dist_init_addr", lambda s: s.engine.nodes.address),),
        "log.level": (Said("log_level", lambda s: s.log.level),),
    },
    "vllm": dict(_SHARED)
    | {
        "model.path": (Said("model", lambda s: s.model.path, always=True),),
        "model.served_name": (Said("served_model_name", lambda s: [s.model.served_name]),),
        "model.tokenizer_path": (Said("tokenizer", lambda s: s.model.tokenizer_path),),
        "server.host": (Said("host", _unless_headless(lambda s: s.server.host), always=True),),
        "server.port": (Said("port", _unless_headless(lambda s: s.server.port), always=True),),
        "server.api_key": (Said("VLLM_API_KEY", _unless_headless(_key), variable=True),),
        "server.drain_timeout_s": (
            Said(
                "shutdown_timeout",
                _unless_headless(lambda s: math.ceil(s.server.drain_timeout_s)),
                always=True,
            ),
        ),
        "tokenizer.worker_num": (
            Said(
                "api_server_count",
                lambda s: 0 if _is_headless(s) else s.tokenizer.worker_num,
                always=True,
            ),
        ),
        "image.force_cpu_preprocessing": (
            Said("mm_processor_device", _forced("cpu")),
            Said("processor_device", _forced("cpu")),
        ),
        "image.max_pixels": (
            Said("VLLM_MAX_IMAGE_PIXELS", lambda s: s.image.max_pixels, variable=True),
        ),
        "image.max_per_request": (
            Said("limit_mm_per_prompt", lambda s: {"vision_chunk": s.image.max_per_request}),
            Said("limit_of_vision_chunks", lambda s: s.image.max_per_request),
        ),
        "media.allowed_local_dirs": (
            Said("allowed_local_media_path", lambda s: _only(s.media.allowed_local_dirs)),
        ),
        "media.max_bytes": (Said("VLLM_MAX_MEDIA_DOWNLOAD_SIZE_MB", _mib, variable=True),),
        "media.timeout_s": (
            Said("VLLM_IMAGE_FETCH_TIMEOUT", lambda s: math.ceil(s.media.timeout_s), variable=True),
        ),
        "media.max_redirects": (
            Said(
                "VLLM_MEDIA_URL_ALLOW_REDIRECTS",
                lambda s: s.media.max_redirects > 0,
                variable=True,
            ),
        ),
        "gpu.mem_fraction_static": (
            Said("gpu_memory_utilization", lambda s: s.gpu.mem_fraction_static),
        ),
        "engine.nodes.rank": (
            Said("node_rank", lambda s: s.engine.nodes.rank, always=True),
            Said("headless", _is_headless, always=True),
        ),
        "engine.nodes.address": (
            Said("master_addr", _address(0)),
            Said("master_port", _address(1)),
        ),
        "log.level": (
            Said("VLLM_LOGGING_LEVEL", lambda s: s.log.level.upper(), variable=True),
            Said("uvicorn_log_level", _unless_headless(lambda s: s.log.level)),
        ),
    },
}


def _only(folders: tuple[str, ...]) -> str | None:
    """vLLM reads from one folder; several are refused or left out by the plan."""
    return folders[0] if len(folders) == 1 else None


# What engine.args say in place of a setting that nobody set, by the name of the case.
OWN_WORDS: Mapping[str, tuple[str, ...]] = {
    "args own nodes": (
        "nnodes",
        "node_rank",
        "headless",
        "host",
        "port",
        "api_server_count",
        "shutdown_timeout",
    ),
    "args own transport": ("mm_feature_transport",),
    "args begins with a dash": ("served_model_name",),
    "args list": ("served_model_name",),
    "args limit": ("limit_mm_per_prompt",),
}


def fields(engine: Engine) -> tuple[str, ...]:
    """The engine's fields of which the answer is wanted whether they were given or not."""
    said = {each.name for group in SAID[engine].values() for each in group if not each.variable}
    # Their defaults look at the machine's memory.
    return tuple(sorted(said - {"mem_fraction_static", "gpu_memory_utilization"}))
