"""What a user may write, with every default, bound, flag and help text in one place.

The sections are plain frozen models: reading profiles, variables and flags is the business of
`launcher.sources`. Field metadata says how a value is spelt on the command line.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr

from .allowed_hosts import ends_in_number, is_host_name
from .colour import parse_colour
from .gpu_ids import check_gpu_ids
from .versions import tidied
from .vocabulary import (
    EngineKind,
    ImageDtype,
    ImageFormat,
    ImageKernel,
    ImagePolicy,
    LogFormat,
    LogLevel,
    RestartPolicy,
)


def _check_colour(text: str) -> str:
    parse_colour(text)
    return text


Colour = Annotated[str, AfterValidator(_check_colour)]
"""A CSS basic colour name or `#rgb` / `#rrggbb`."""


def _check_host(text: str) -> str:
    if not (is_host_name(text.lower()) or _is_address(text)):
        message = f"{text[:80]!r} is not a host: write a name, an IPv4 or an IPv6 address, no port"
        raise ValueError(message)
    return text


def _is_address(text: str) -> bool:
    """Say whether sockets take a text for an address, also one that is cut short: `0`, `127.1`."""
    try:
        if ":" in text:
            return bool(ipaddress.IPv6Address(text))
        # The C library stops reading at a blank.
        is_number = ends_in_number(text) and not any(map(str.isspace, text))
        return is_number and bool(socket.inet_aton(text))
    except (OSError, ValueError):
        return False


Host = Annotated[str, AfterValidator(_check_host)]
"""A host name or address without port and brackets."""


def _check_version(text: str | None) -> str | None:
    return None if text is None else tidied(text)


Version = Annotated[str | None, AfterValidator(_check_version)]
"""A release of an engine, as its package says it; `v0.5.23` is kept as `0.5.23`."""

GpuIds = Annotated[tuple[str, ...] | None, AfterValidator(check_gpu_ids)]
"""GPUs as CUDA takes them, each once."""


class FilePath:
    """Marks a string that names a place on disk: relative ones are relative to who wrote them."""


class ModelPath:
    """Marks a string that is a directory or a hub id `org/name`."""


def setting(default: Any, help: str, *, flag: str | None = None, **bounds: Any) -> Any:
    """A field with its help text; `flag` replaces the spelling made from the path."""
    return Field(default, description=help, json_schema_extra={"flag": flag}, **bounds)


class Section(BaseModel):
    """Base of all sections."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,
        use_attribute_docstrings=False,
        defer_build=True,  # most commands validate all sections at once, and need no part alone
    )


class ModelSettings(Section):
    path: Annotated[str | None, ModelPath()] = setting(
        None,
        "Checkpoint directory, or a hub id that is looked up in the local cache; "
        "null serves the bundled demo checkpoint.",
        flag="--model-path",
        min_length=1,
    )
    revision: str | None = setting(None, "Revision of a hub id.", flag="--revision", min_length=1)
    tokenizer_path: Annotated[str | None, ModelPath()] = setting(
        None,
        "Take the tokenizer from here instead of model.path.",
        flag="--tokenizer-path",
        min_length=1,
    )
    served_name: str | None = setting(
        None,
        "The name that /v1/models and answers show.",
        flag="--served-model-name",
        min_length=1,
    )
    trust_remote_code: bool = setting(
        False,
        "Passed to an engine; the built-in workers never run code of a checkpoint.",
        flag="--trust-remote-code",
    )


class TokenizerSettings(Section):
    worker_num: int = setting(
        1,
        "Worker processes, each with its own tokenizer and image processor.",
        flag="--tokenizer-worker-num",
        ge=1,
        le=1024,
    )
    skip_init: bool = setting(
        False, "Load no tokenizer: images only.", flag="--skip-tokenizer-init"
    )
    worker_memory_mib: int | None = setting(
        None,
        "Most memory that the work of one built-in worker takes, beyond what it has when it is "
        "ready; null computes what the largest image needs.",
        ge=16,
        le=2**20,
    )
    timeout_s: float = setting(
        20.0, "Processor time that one text or chat may take; beyond it 413.", gt=0, le=3600
    )
    max_text_bytes: int = setting(
        2**23, "Longest text, or chat as JSON without its images; beyond it 413.", ge=1, le=2**31
    )


class ImageSettings(Section):
    force_cpu_preprocessing: bool = setting(
        False,
        "Decode and preprocess images on the CPU, whatever devices there are.",
        flag="--force-cpu-image-preprocessing",
    )
    policy: ImagePolicy = setting(
        "display",
        "display: what a person sees (upright, transparency on image.background, 16-bit grey "
        "scaled); checkpoint: what the checkpoint's own processor does, to the bit.",
    )
    background: Colour = setting("white", "What shows through transparency under display.")
    dtype: ImageDtype = setting(
        "float32", "Type of pixel_values; uint8 leaves the normalisation to the consumer."
    )
    kernel: ImageKernel = setting(
        "auto",
        "What computes the pixels, all equal to the bit: native, the compiled kernel, or an error; "
        "pure, Pillow and numpy; auto, native where it is installed and passes its self-test.",
    )
    max_pixels: int = setting(
        50_000_000, "Largest width x height that is decoded.", ge=1, le=1_000_000_000
    )
    timeout_s: float = setting(
        20.0, "Processor time that one image may take; beyond it 413.", gt=0, le=3600
    )
    max_per_request: int = setting(64, "Most images in one request.", ge=1, le=4096)
    formats: tuple[ImageFormat, ...] = setting(
        ("jpeg", "png", "webp", "gif"), "Formats that are accepted, by content.", min_length=1
    )
    cache_bytes: int = setting(
        0,
        "Memory for processed images whose content may come again; 0 keeps none.",
        ge=0,
        le=2**40,
    )


class MediaSettings(Section):
    allowed_domains: tuple[str, ...] = setting(
        (), "Hosts that images may be fetched from; empty refuses every remote URL."
    )
    allowed_local_dirs: tuple[Annotated[str, FilePath()], ...] = setting(
        (), "Folders that local images may be read from; empty refuses every local path."
    )
    max_bytes: int = setting(64 * 2**20, "Most encoded bytes of one image.", ge=1, le=2**32)
    timeout_s: float = setting(10.0, "Total time to fetch one image.", gt=0, le=3600)
    max_redirects: int = setting(3, "Most redirects on one fetch.", ge=0, le=20)


class ServerSettings(Section):
    host: Host = setting("127.0.0.1", "Address to listen on.", flag="--host", min_length=1)
    port: int = setting(
        30000, "Port to listen on; 0 lets the kernel choose.", flag="--port", ge=0, le=65535
    )
    api_key: SecretStr | None = setting(
        None, "Bearer key that clients must send.", flag="--api-key", min_length=1
    )
    previous_api_key: SecretStr | None = setting(
        None, "Also accepted, while clients change to server.api_key.", min_length=1
    )
    admin_host: Host = setting("127.0.0.1", "Address of server.admin_port.", min_length=1)
    admin_port: int | None = setting(
        None,
        "Port where alone /metrics and /server_info are then; null leaves them on server.port.",
        ge=0,
        le=65535,
    )
    max_body_bytes: int = setting(256 * 2**20, "Largest request body.", ge=1024, le=2**34)
    max_queued_bytes: int = setting(
        2048 * 2**20,
        "Most bytes of unanswered requests and unsent answers; beyond it 429. The workers' slots, "
        "and what they decode into, come on top.",
        ge=1024,
        le=2**40,
    )
    max_queued_requests: int = setting(
        1024, "Most requests that wait for their answer; beyond it 429.", ge=1, le=2**20
    )
    max_response_bytes: int = setting(
        1024 * 2**20, "Largest pixel_values of one answer; beyond it 413.", ge=1024, le=2**36
    )
    start_timeout_s: float = setting(60.0, "Time for all workers to be ready.", gt=0, le=3600)
    request_timeout_s: float = setting(60.0, "Time to answer one request.", gt=0, le=3600)
    drain_timeout_s: float = setting(
        30.0, "Time to finish running requests after SIGTERM.", ge=0, le=3600
    )


class ProgramPath:
    """Marks a string that names a program: a bare name is looked up in PATH, the rest is a path."""


class NodesSettings(Section):
    """The machines that one engine spans."""

    count: int = setting(
        1, "Machines that the model is spread over.", flag="--nnodes", ge=1, le=1024
    )
    rank: int = setting(
        0, "Which of them this is; 0 answers clients.", flag="--node-rank", ge=0, le=1023
    )
    address: str | None = setting(
        None,
        "host:port of the first machine, the same on all; where they find each other.",
        flag="--dist-init-addr",
        min_length=1,
    )


class EngineSettings(Section):
    kind: EngineKind = setting(
        "none", "Who serves: the built-in workers, or an engine that is started.", flag="--engine"
    )
    version: Version = setting(
        None, "Version of the engine, where it cannot be asked.", min_length=1
    )
    python: Annotated[str | None, ProgramPath()] = setting(
        None,
        "Interpreter that has the engine installed; null takes the one that runs kimi-serve.",
        min_length=1,
    )
    args: tuple[str, ...] = setting((), "Further arguments of the engine, one item each.")
    env: dict[str, str] = setting({}, "Further variables of the engine.")
    startup_timeout_s: float = setting(1800.0, "Time for the engine to be ready.", gt=0, le=86400)
    kill_timeout_s: float = setting(
        30.0, "Time between SIGTERM and SIGKILL, once nothing is left to finish.", gt=0, le=3600
    )
    restart: RestartPolicy = setting("never", "Whether an engine that failed is started again.")
    max_restarts: int = setting(
        3, "Most restarts in a row; ten minutes of service begin a new row.", ge=1, le=1000
    )
    restart_backoff_s: float = setting(
        1.0, "Pause before the first restart; it doubles, up to a minute.", gt=0, le=3600
    )
    status_port: int | None = setting(
        None,
        "Port of the launcher's own /health, /ready and /server_info beside the engine; "
        "/ready turns 503 as soon as a stop begins.",
        ge=0,
        le=65535,
    )
    nodes: NodesSettings = NodesSettings.model_construct()


class GpuSettings(Section):
    ids: GpuIds = setting(
        None,
        "GPUs to plan for and to use, by index or UUID; null asks the driver. An engine gets them "
        "as CUDA_VISIBLE_DEVICES.",
    )
    total_mib: int | None = setting(
        None, "Memory of the first GPU in MiB; null asks the driver.", ge=1, le=2**24
    )
    mem_fraction_static: float | None = setting(
        None,
        "Share of GPU memory that the engine takes for weights and cache; null leaves it to the "
        "engine.",
        flag="--mem-fraction-static",
        gt=0,
        lt=1,
    )
    worker_context_mib: int = setting(
        800, "GPU memory of one worker's CUDA context, in MiB.", ge=0, le=2**20
    )
    worker_budget_mib: int | None = setting(
        None,
        "Most GPU memory of one built-in worker's image buffers in MiB, beyond its context; images "
        "that need more are preprocessed on the CPU. null sets no cap.",
        ge=64,
        le=2**20,
    )


class LogSettings(Section):
    level: LogLevel = setting("info", "Least severe line that is written.", flag="--log-level")
    format: LogFormat = setting("text", "text or json lines.", flag="--log-format")


class Settings(Section):
    """Everything a user may say about one deployment."""

    model: ModelSettings = ModelSettings.model_construct()
    tokenizer: TokenizerSettings = TokenizerSettings.model_construct()
    image: ImageSettings = ImageSettings.model_construct()
    media: MediaSettings = MediaSettings.model_construct()
    server: ServerSettings = ServerSettings.model_construct()
    engine: EngineSettings = EngineSettings.model_construct()
    gpu: GpuSettings = GpuSettings.model_construct()
    log: LogSettings = LogSettings.model_construct()
