"""Names of the engines' and of CUDA's own that several rooms spell, each spelt once."""

from __future__ import annotations

# SGLang's switch for CPU images, and the old name, which overwrites it at the engine's start.
SWITCH = "SGLANG_FORCE_CPU_IMAGE_PREPROCESSING"
OLD_SWITCH = "SGL_FORCE_CPU_IMAGE_PREPROCESSING"
IPC_SWITCH = "SGLANG_USE_CUDA_IPC_TRANSPORT"
IO_WORKERS = "SGLANG_IO_WORKERS"
HEALTH_TIMEOUT = "SGLANG_UVICORN_WORKER_HEALTHCHECK_TIMEOUT"
VISIBLE = "CUDA_VISIBLE_DEVICES"

K25 = "KimiK25ForConditionalGeneration"
KIMI = (K25, "KimiK3ForConditionalGeneration")
