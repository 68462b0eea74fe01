"""What the launcher found on this machine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Gpu:
    """One CUDA device; sizes in MiB, None where the driver was not asked or has none to report.

    `slices` are the MIG devices of a GPU that is divided, None of one that is not. `memory_fault`
    is why the driver, asked for the memory, failed.
    """

    index: int
    uuid: str | None = None
    name: str | None = None
    total_mib: int | None = None
    free_mib: int | None = None
    slices: tuple[Gpu, ...] | None = None
    memory_fault: str = ""


@dataclass(frozen=True, slots=True)
class Hardware:
    """Cores (after cgroup quota and affinity), memory and the CUDA devices a child would see.

    `gpu_source` says how the devices were found, or why there are none. `shm_mib` is the size of
    /dev/shm, None where there is none or nobody looked. `all_gpus` are the devices of the machine,
    whatever CUDA_VISIBLE_DEVICES hides, None where nobody looked beyond it. `has_gpu_extra` says
    whether torch and torchvision are installed for this interpreter, `has_image_kernel` whether the
    compiled image kernel is.
    """

    cpus: float
    memory_mib: int
    gpus: tuple[Gpu, ...]
    gpu_source: str
    shm_mib: int | None = None
    all_gpus: tuple[Gpu, ...] | None = None
    has_gpu_extra: bool = False
    has_image_kernel: bool = True
