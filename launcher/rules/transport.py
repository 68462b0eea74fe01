"""How image features go from SGLang's tokenizer workers to its scheduler."""

from __future__ import annotations

from kimi_serve.schemas.engine_facts import read_boolean
from kimi_serve.schemas.engine_names import IPC_SWITCH

from ..resolver.engine_view import Given
from ..resolver.situation import Situation

FEATURE_CACHE = "SGLANG_MM_FEATURE_CACHE_MB"
FEATURE_CACHE_MIB = 1024  # the engine's default for it


def gpu_transport(situation: Situation) -> Given | None:
    """Give who chooses cuda_ipc or cuda_vmm; None where features travel through the CPU.

    What cannot be had with it is wrong about its value.
    """
    given = situation.flag("--mm-feature-transport")
    if given is not None:
        return given.at_value if given.text.startswith("cuda_") else None
    legacy = situation.variable(IPC_SWITCH) if situation.kind == "sglang" else None
    is_honoured = situation.row is not None and situation.row.flag == "honoured"
    if legacy is not None and not legacy.path and situation.is_forced and is_honoured:
        return None  # the launch takes it away
    if legacy is not None and read_boolean("env-bool", legacy.text) is True:
        return Given(legacy.name, "cuda_ipc", legacy.origin, legacy.path)
    return None
