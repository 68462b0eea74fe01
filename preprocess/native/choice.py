"""Which path makes the pixels on this machine, and why."""

from __future__ import annotations

import functools
import logging
from dataclasses import dataclass, replace

from kimi_serve.schemas.errors import PlanError
from kimi_serve.schemas.vocabulary import ImageDtype, ImageKernel
from kimi_serve.schemas.worker import ResizeConfig

from ..images.normalise import Normaliser
from ..images.picture import PatchWriter, PureWriter
from ..images.png import Unfilter

logger = logging.getLogger(__name__)

_AUTO = "set image.kernel: auto"
_REINSTALL = f"reinstall kimi-serve with a C compiler at hand, or {_AUTO}"


@dataclass(frozen=True, slots=True)
class KernelChoice:
    """The path, as people read it, and the reason; `level` is None on the pure path.

    `faults` are what cannot be loaded or failed its self-test. `unfilter` is for PNG rows, None
    without the kernel; the pure path has it where only the patches do not fit.
    """

    path: str
    reason: str
    level: str | None
    faults: tuple[str, ...] = ()
    unfilter: Unfilter | None = None

    def writer(self, config: ResizeConfig, dtype: ImageDtype) -> PatchWriter:
        """Build what writes patches by this path."""
        if self.level is None:
            return PureWriter(Normaliser(config, dtype))
        from .kernel import NativeWriter

        return NativeWriter(config, dtype, self.level)

    def log(self) -> None:
        """Say the choice once at a start: loudly where the kernel is not to be trusted."""
        for fault in self.faults:
            logger.warning("the native image kernel is not to be trusted: %s", fault)
        level = logging.WARNING if self.faults else logging.INFO
        logger.log(level, "images are preprocessed by the %s path: %s", self.path, self.reason)


def choose_kernel(
    preference: ImageKernel = "auto", config: ResizeConfig | None = None
) -> KernelChoice:
    """Choose by what is installed, passes its self-test (once a process) and takes `config`.

    Raises PlanError when the native kernel is demanded and cannot be had.
    """
    if preference == "pure":
        return KernelChoice("pure", "image.kernel is pure", None)
    choice, hint = _tested(), _REINSTALL
    misfit = _misfit(choice, config)
    if misfit is not None:
        choice, hint = replace(choice, path="pure", reason=misfit, level=None), _AUTO
    if preference == "native" and choice.level is None:
        raise PlanError(f"image.kernel is native, but {choice.reason}", hint=hint)
    return choice


def _misfit(choice: KernelChoice, config: ResizeConfig | None) -> str | None:
    if choice.level is None or config is None:
        return None
    from .kernel import misfit

    return misfit(config)


@functools.cache
def _tested() -> KernelChoice:
    # Here, because a module that is cut off may end the process that loads it: pure never does.
    from . import kernel, self_test

    if kernel.missing:
        faulty = (kernel.missing,) if kernel.is_damaged else ()
        return KernelChoice("pure", kernel.missing, None, faulty)
    faults: list[str] = []
    png_fault = self_test.find_png_fault()
    if png_fault is not None:
        faults.append(f"PNG rows: {png_fault}")
    for level in kernel.supported_levels():
        fault = self_test.find_fault(level)
        if fault is None:
            reason = "its self-test equals the installed Pillow and the pure path in every byte"
            for_png = kernel.unfilter if png_fault is None else None
            return KernelChoice(f"native {level}", reason, level, tuple(faults), for_png)
        faults.append(f"{level}: {fault}")
    return KernelChoice("pure", "no level of the kernel passed", None, tuple(faults))
