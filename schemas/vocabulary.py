"""Words that settings, plan and workers share, each spelt once; standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple, get_args

ImageFormat = Literal["jpeg", "png", "webp", "gif", "bmp", "tiff", "avif"]
ImagePolicy = Literal["display", "checkpoint"]
ImageDtype = Literal["float32", "bfloat16", "uint8"]
ImageKernel = Literal["auto", "native", "pure"]
# The setting that keeps images on the CPU, as it is written.
FORCE_CPU = "image.force_cpu_preprocessing"
# Why an image of a CUDA worker was redone on the CPU.
GpuFallback = Literal["over-budget", "out-of-memory", "decoder-refused", "device-error"]
EngineName = Literal["sglang", "vllm"]
ENGINES: tuple[EngineName, ...] = get_args(EngineName)
# "none" are the built-in workers.
EngineKind = Literal["none", EngineName]
RestartPolicy = Literal["never", "on-failure"]
LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["text", "json"]
# What stands where a secret was.
HIDDEN = "***"
# Begins like the variables of settings, and is none.
LINT_FORMAT = "KIMI_SERVE_LINT_FORMAT"

# A tokenizer is called by its file; where a checkpoint has both, the first is read.
TokenizerKind = Literal["tokenizer.json", "tiktoken.model"]
TOKENIZER_KINDS: tuple[TokenizerKind, ...] = get_args(TokenizerKind)


class DtypeLayout(NamedTuple):
    """How one value of a tensor is stored: its bytes, and its name in a safetensors header."""

    num_bytes: int
    safetensors_name: str


# Every `ImageDtype`, and the type of grids and token ids.
DTYPES: Mapping[str, DtypeLayout] = MappingProxyType(
    {
        "float32": DtypeLayout(4, "F32"),
        "bfloat16": DtypeLayout(2, "BF16"),
        "uint8": DtypeLayout(1, "U8"),
        "int64": DtypeLayout(8, "I64"),
    }
)
