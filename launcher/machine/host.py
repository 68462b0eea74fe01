"""All that is asked of a machine and an installation when nothing is planned."""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from kimi_serve.preprocess.native.choice import KernelChoice, choose_kernel
from kimi_serve.preprocess.workers.process import describe_exit
from kimi_serve.schemas.hardware import Hardware

from ..version import installed_version
from .hardware import probe

_LIBRARIES = (
    "kimi-serve", "numpy", "pillow", "simplejpeg", "zlib-ng", "pybase64", "tiktoken", "tokenizers",
    "torch", "torchvision", "transformers", "nvidia-ml-py", "sglang", "vllm",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Host:
    """What was found. `open_files` are the soft and the hard limit, None without one.

    `kernel_levels` are what this processor could run of the image kernel, best first; `versions`
    has None for what is not installed.
    """

    hardware: Hardware
    cores: int
    open_files: tuple[int | None, int | None]
    system: str
    kernel: KernelChoice
    kernel_levels: tuple[str, ...]
    versions: Mapping[str, str | None]

    @property
    def faults(self) -> tuple[str, ...]:
        """What is installed and does not do its work."""
        return tuple(f"the native image kernel: {fault}" for fault in self.kernel.faults)


def examine(env: Mapping[str, str]) -> Host:
    """Look at everything; imports the image libraries, never torch."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    kernel, levels = _kernel()
    return Host(
        hardware=probe(env),
        cores=os.cpu_count() or 1,
        open_files=(_limit(soft), _limit(hard)),
        system=f"{platform.system()} {platform.release()}, {platform.machine()}, "
        f"{' '.join(platform.libc_ver())}, Python {platform.python_version()}",
        kernel=kernel,
        kernel_levels=levels,
        versions={name: installed_version(name) for name in _LIBRARIES},
    )


def _kernel() -> tuple[KernelChoice, tuple[str, ...]]:
    """Choose a path; the module is first loaded by a process that a damaged file may end."""
    command = [sys.executable, "-P", "-c", "import kimi_serve.preprocess.native.kernel"]
    tried = subprocess.run(command, capture_output=True, check=False)
    if tried.returncode < 0:
        fault = f"loading it ends the process: {describe_exit(-tried.returncode)}"
        return KernelChoice("none", f"{fault}; reinstall kimi-serve", None, (fault,)), ()
    from kimi_serve.preprocess.native.kernel import supported_levels

    return choose_kernel(), tuple(supported_levels())


def _limit(value: int) -> int | None:
    return None if value == resource.RLIM_INFINITY else value
