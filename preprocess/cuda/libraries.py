"""The one place that imports torch and its companions, when a worker needs them and not before.

They are untyped here: nothing else of the package depends on their being installed.
"""

from __future__ import annotations

import importlib
from typing import Any

from kimi_serve.schemas.errors import MissingDependencyError

Tensor = Any

_PURPOSE = "preprocessing images on a CUDA device"


def load_torch() -> Any:
    """Give torch with one thread; raises MissingDependencyError without the extra."""
    torch = _load("torch")
    torch.set_num_threads(1)
    return torch


def load_image_io() -> Any:
    """Give torchvision.io."""
    return _load("torchvision.io")


def load_image_codec() -> Any | None:
    """Give nvidia.nvimgcodec where somebody installed it; it is not part of the extra."""
    try:
        return importlib.import_module("nvidia.nvimgcodec")
    except (ImportError, OSError):
        return None


def _load(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except (ImportError, OSError) as error:
        raise MissingDependencyError(f"{_PURPOSE} ({error})", "gpu") from error
