"""The deployments whose command lines are proved: the examples, and a table of settings."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from kimi_serve.launcher.pipeline import load

ROOT = Path(__file__).resolve().parents[2]
PROFILES = ROOT / "examples" / "profiles"
DEMO = ROOT / "preprocess" / "demo_checkpoint"
ENGINES: Mapping[str, str] = {"sglang": "0.5.23", "vllm": "0.33.0"}
# What a shell or argparse could trip over.
KEYS: Mapping[str, str] = {"KIMI_API_KEY": "-a key of 'our' $clients"}

Engine = Literal["sglang", "vllm"]
FORCED, WORKERS = "image.force_cpu_preprocessing", "tokenizer.worker_num"


@dataclass(frozen=True)
class Case:
    """One deployment. `profile` is a file below which `settings` stand; `env` is inherited."""

    name: str
    engine: Engine
    settings: Mapping[str, Any]
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    profile: str = ""

    @property
    def tree(self) -> dict[str, Any]:
        """The settings as a profile has them."""
        tree: dict[str, Any] = {}
        for path, value in self.settings.items():
            *sections, name = path.split(".")
            inner = tree
            for section in sections:
                inner = inner.setdefault(section, {})
            inner[name] = value
        return tree


# One setting at a time, on top of `base_settings`.
_VALUES: Mapping[str, tuple[Any, ...]] = {
    "model.revision": ("0123456789abcdef0123456789abcdef01234567",),
    "model.tokenizer_path": (str(DEMO),),
    "model.served_name": ("kimi-k2.5", "moonshotai/Kimi-K2.5", "two words, 'quoted' $HOME", "-k2"),
    "model.trust_remote_code": (False,),
    WORKERS: (1, 2, 16, 64),
    FORCED: (False, True),
    "image.max_per_request": (1, 16, 64, 4096),
    "image.max_pixels": (1, 50_000_000),
    "media.allowed_domains": (["images.example.com"], ["a.example.com", "b.example.com"]),
    "media.allowed_local_dirs": (["/srv/images"], ["/srv/images", "/srv/more"]),
    "media.max_bytes": (1, 2**20, 2**20 + 1, 64 * 2**20, 2**32),
    "media.timeout_s": (0.5, 10.0, 3600),
    "media.max_redirects": (0, 3),
    "server.host": ("127.0.0.1", "0.0.0.0", "::", "::1", "kimi-0.example.internal"),
    "server.port": (1, 8000, 65535),
    "server.api_key": ({"env": "KIMI_API_KEY"},),
    "server.drain_timeout_s": (0, 0.5, 3600),
    "gpu.mem_fraction_static": (0.05, 0.8, 0.999),
    "log.level": ("debug", "info", "warning", "error"),
    "log.format": ("json",),
}
_NODES: tuple[tuple[int, int, str], ...] = (
    (1, 0, ""),
    (2, 0, "kimi-0.example.internal:20000"),
    (2, 1, "10.0.0.1:20000"),
    (4, 3, "[fd00::1]:20000"),
)
_TENSOR = {"sglang": "--tp-size", "vllm": "--tensor-parallel-size"}
_IMAGES = '{"image": {"max_pixels": 1000}}'
# What users write in the engine's own words: aliases, abbreviations, `=`, JSON, what we say too.
_ARGS: Mapping[Engine, Mapping[str, tuple[str, ...]]] = {
    "sglang": {
        "alias": ("--tp", "8"),
        "longer alias": ("--tensor-parallel-size", "8"),
        "abbreviation": ("--tool-call", "kimi_k2", "--watchdog-time", "600"),
        "equals": ("--tp-size=8", "--tool-call-parser=kimi_k2"),
        "json": ("--mm-process-config", _IMAGES),
        "list": ("--mamba-track-interval", "64", "--cuda-graph-bs-decode", "1", "2", "4"),
        "list, equals": ("--allowed-media-domains=a.example.com",),
        "list, twice": ("--cuda-graph-bs-decode", "1", "--cuda-graph-bs-decode", "2", "3"),
        "twice": ("--tp", "4", "--tp", "8"),
        "below zero": ("--random-seed=-5",),
        "empty": ("--chat-template", ""),
        "begins with a dash": ("--served-model-name=-k2",),
        "a fraction": ("--mem-fraction", "0.7", "--schedule-conservativeness", "1e-1"),
        "negative": ("--no-mm-enable-dp-encoder",),
        "the same again": ("--tokenizer-worker-num", "4", "--trust-remote-code"),
        "own threads": ("--mm-processor-worker-num", "3", "--mm-io-worker-num", "5"),
        "own transport": ("--mm-feature-transport=cpu",),
        "own nodes": ("--nnodes", "2", "--node-rank=1", "--nccl-init", "10.0.0.1:2", "--tp=16"),
        "data parallel": ("--dp", "2", "--tp", "4"),
    },
    "vllm": {
        "alias": ("-tp", "8"),
        "underscores": ("--tensor_parallel_size", "8"),
        "abbreviation": ("--max-model", "2k"),
        "equals": ("--tensor-parallel-size=8", "--mm-encoder-tp-mode=data"),
        "json": ("--media-io-kwargs", '{"image": {"image_mode": "RGB"}}'),
        "dotted": ("--mm-processor-kwargs.use_fast", "true", "--media-io-kwargs.image.a", "1"),
        "dotted list": ("--additional-config.names+", "a,b"),
        "dotted, twice": ("-cc.mode=3", "--compilation-config.cudagraph_capture_sizes+", "1,2"),
        "list": ("--served-model-name", "a", "b"),
        "list, appended": ("--middleware", "a.b", "--middleware", "c.d"),
        "twice": ("-tp", "4", "-tp", "8"),
        "below zero": ("--max-model-len", "-1"),
        "empty": ("--chat-template", ""),
        "begins with a dash": ("--served-model-name=-k2",),
        "keys": ("--api-key", "one", "two"),
        "limit": ("--limit-mm-per-prompt.image", "3", "--limit-mm-per-prompt.video", "1"),
        "negative": ("--no-enable-prefix-caching",),
        "the same again": ("--api-server-count", "4", "--trust-remote-code"),
        "short": ("-asc", "4", "-O1"),
        "own nodes": ("-n", "2", "-r=1", "--master-addr", "10.0.0.1", "--headless"),
        "data parallel": ("--data-parallel-size", "2", "--tensor-parallel-size", "4"),
    },
}
_ENV: Mapping[Engine, Mapping[str, Mapping[str, str]]] = {
    "sglang": {
        "the old name": {"SGL_FORCE_CPU_IMAGE_PREPROCESSING": "0"},
        "the old transport": {"SGLANG_USE_CUDA_IPC_TRANSPORT": "1"},
        "own threads": {"SGLANG_IO_WORKERS": "7"},
        "patience": {"SGLANG_UVICORN_WORKER_HEALTHCHECK_TIMEOUT": "120"},
    },
    "vllm": {
        "a key": {"VLLM_API_KEY": "inherited"},
        "a level": {"VLLM_LOGGING_LEVEL": "ERROR"},
        "redirects": {"VLLM_MEDIA_URL_ALLOW_REDIRECTS": "0"},
    },
}


def cases(engine: Engine) -> tuple[Case, ...]:
    """Every deployment that is proved for one engine."""
    found = (*_examples(engine), *_one_setting(engine), *_combinations(engine), *_words(engine))
    assert len({case.name for case in found}) == len(found), "two cases have one name"
    return found


def base_settings(engine: Engine) -> dict[str, Any]:
    """What every made-up deployment says; the GPUs are declared, so none need be here."""
    return {
        "model.path": str(DEMO),
        "model.trust_remote_code": True,
        "engine.kind": engine,
        "engine.version": ENGINES[engine],
        "gpu.ids": [str(number) for number in range(8)],
        "gpu.total_mib": 143771,
    }


def _examples(engine: Engine) -> Iterator[Case]:
    """The profiles of the examples; one without an engine is given this one."""
    for path in sorted(PROFILES.glob("*.kimi-serve.yaml")):
        kind = load([path], {}, [], KEYS).settings.engine.kind
        if kind not in ("none", engine):
            continue
        settings: dict[str, Any] = {"model.path": str(DEMO)}
        if kind == "none":
            settings |= {"engine.kind": engine, "engine.version": ENGINES[engine]}
        name = path.name.removesuffix(".kimi-serve.yaml")
        if engine == "sglang" and name in ("container", "kubernetes"):
            settings[WORKERS] = 1  # several beside a key are refused by the plan
        yield Case(f"example {name}", engine, settings, KEYS, str(path))


def _one_setting(engine: Engine) -> Iterator[Case]:
    for path, values in _VALUES.items():
        for value in values:
            shown = json.dumps(value).replace(str(DEMO), "CHECKPOINT")
            yield Case(f"{path} {shown}", engine, base_settings(engine) | {path: value}, KEYS)


def _combinations(engine: Engine) -> Iterator[Case]:
    """Workers, the switch, machines and a key: what the engines' own checks look at together."""
    for workers, forced, (count, rank, address) in itertools.product((1, 8), (False, True), _NODES):
        settings = base_settings(engine) | {WORKERS: workers, FORCED: forced}
        settings["engine.args"] = [_TENSOR[engine], str(8 * count)]
        if count > 1:
            settings |= {
                "engine.nodes.count": count,
                "engine.nodes.rank": rank,
                "engine.nodes.address": address,
            }
        for key in (False, True):
            if key and engine == "sglang" and workers > 1:
                continue  # refused by the plan: the engine fails after the model is loaded
            if key:
                settings = settings | {"server.api_key": {"env": "KIMI_API_KEY"}}
            words = f"{workers} workers, forced {forced}, node {rank} of {count}, key {key}"
            yield Case(words, engine, settings, KEYS)


def _words(engine: Engine) -> Iterator[Case]:
    """What comes from engine.args, engine.env and the inherited environment."""
    for name, args in _ARGS[engine].items():
        for forced in (False, True):
            settings = base_settings(engine) | {
                WORKERS: 4,
                FORCED: forced,
                "engine.args": list(args),
            }
            yield Case(f"args {name}, forced {forced}", engine, settings)
    ours = {"KIMI_SERVE_SERVER__PORT": "30001"}
    yield Case("inherited ours", engine, base_settings(engine), ours)
    for name, env in _ENV[engine].items():
        settings = base_settings(engine) | {WORKERS: 4, FORCED: True}
        yield Case(f"inherited {name}", engine, settings, env)
        yield Case(f"engine.env {name}", engine, settings | {"engine.env": dict(env)})
