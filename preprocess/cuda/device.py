"""One device of one worker: opened once, capped, asked whether it still works."""

from __future__ import annotations

import logging
from typing import Any

from kimi_serve.schemas.errors import PlanError

from .libraries import load_torch
from .memory import MIB

logger = logging.getLogger(__name__)


class Device:
    """torch and the device that it works on; `budget_bytes` caps image buffers, None does not.

    "cpu" is a device too: what runs there is what runs on a GPU, but for the JPEG decoders.
    """

    def __init__(self, torch: Any, name: str, budget_bytes: int | None = None) -> None:
        self.torch = torch
        self.name = name
        self.budget_bytes = budget_bytes

    @property
    def is_cuda(self) -> bool:
        return self.name.startswith("cuda")

    def free_text(self) -> str:
        """Say how much memory the device has left."""
        if not self.is_cuda:
            return "unknown"
        free, total = self.torch.cuda.mem_get_info()
        return f"{free // MIB} of {total // MIB} MiB"

    def release_memory(self) -> None:
        """Give back what torch keeps for the next image."""
        if self.is_cuda:
            self.torch.cuda.empty_cache()

    def require_working(self) -> None:
        """End the process when its CUDA context is lost: no call would succeed any more.

        The job goes to another worker, and a new one takes this place.
        """
        if not self.is_cuda:
            return
        try:
            self.torch.cuda.synchronize()
        except RuntimeError as error:
            logger.critical("the CUDA context is lost: %s", error)
            raise SystemExit(1) from error


def open_device(name: str, budget_bytes: int | None) -> Device:
    """Make the CUDA context now, so that "ready" means that there was room for it."""
    device = Device(load_torch(), name, budget_bytes)
    if not device.is_cuda:
        return device
    torch = device.torch
    if not torch.cuda.is_available():
        raise PlanError(
            "this worker was planned for a CUDA device, and torch sees none",
            hint="look at CUDA_VISIBLE_DEVICES and the driver, or set "
            "image.force_cpu_preprocessing: true",
        )
    try:
        torch.zeros(1, device=name)
        torch.cuda.synchronize()
    except RuntimeError as error:
        raise PlanError(
            f"no CUDA context can be made: {error}",
            hint="fewer workers (tokenizer.worker_num), or image.force_cpu_preprocessing: true",
        ) from error
    if budget_bytes is not None:
        total = torch.cuda.get_device_properties(name).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, budget_bytes / total), name)
    return device
