"""Everything that one worker process needs, as plain frozen data that pickles.

Standard library only: a worker imports this and no settings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .vocabulary import ImageDtype, ImageKernel, ImagePolicy, LogFormat, LogLevel, TokenizerKind

Device = Literal["cpu", "cuda"]


@dataclass(frozen=True, slots=True)
class ResizeConfig:
    """The checkpoint's image arithmetic, in the checkpoint's own words.

    `in_patch_limit` counts patches of `patch_size` pixels before padding;
    `patch_limit_on_one_side` counts them along one side.
    """

    in_patch_limit: int
    patch_limit_on_one_side: int
    patch_size: int
    merge_kernel_size: int
    image_mean: tuple[float, float, float]
    image_std: tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class ImageRules:
    """What images are accepted and how they are turned into RGB."""

    policy: ImagePolicy
    background: tuple[int, int, int]
    dtype: ImageDtype
    max_pixels: int
    max_bytes: int
    formats: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TokenizerSpec:
    """Where the tokenizer is and what it must agree with.

    `directory` holds `tokenizer.json`, or `tiktoken.model` with `tokenizer_config.json`.
    `placeholder_id` is the media placeholder of config.json, None when it names none.
    `model_directory` has the chat template when `directory` has none, "" for nowhere else.
    """

    directory: str
    kind: TokenizerKind
    placeholder_id: int | None
    model_directory: str = ""


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """One worker of the fleet; `env` is set before the worker's first import.

    `memory_bytes` is what its work may take beyond what it has when it is ready, 0 for any;
    `gpu_budget_bytes` what its image buffers may take of the GPU, None without a cap.
    """

    index: int
    decode_device: Device
    preprocess_device: Device
    resize: ResizeConfig
    rules: ImageRules
    tokenizer: TokenizerSpec | None
    slots: int
    slot_bytes: int
    memory_bytes: int
    env: tuple[tuple[str, str], ...]
    log_level: LogLevel
    log_format: LogFormat
    image_kernel: ImageKernel = "auto"
    gpu_budget_bytes: int | None = None
