"""What makes the pixels of the built-in workers: the compiled kernel, or Pillow and numpy."""

from __future__ import annotations

from kimi_serve.schemas.errors import PlanError
from kimi_serve.schemas.provenance import Resolved

from .situation import Situation

SETTING = "image.kernel"
_MISSING = "the compiled kernel is not installed (no C compiler when kimi-serve was?)"


def decide_image_kernel(situation: Situation) -> Resolved[str] | None:
    """Decide the path; None where no built-in worker runs.

    Raises PlanError when the kernel is demanded and not there.
    """
    hardware = situation.hardware
    if situation.kind != "none" or hardware is None:
        return None
    wanted, source = situation.settings.image.kernel, str(situation.origin(SETTING))
    if wanted == "pure":
        return Resolved("pure", source, "image.kernel is pure: Pillow and numpy")
    if hardware.has_image_kernel:
        tested = "the compiled kernel, once it equals the installed Pillow in its self-test"
        return Resolved("native", source, tested)
    if wanted == "native":
        raise PlanError(
            f"image.kernel is native ({source}), and {_MISSING}",
            hint="reinstall kimi-serve with a C compiler at hand, or set image.kernel: auto",
        )
    return Resolved("pure", source, f"{_MISSING}: Pillow and numpy, the same bytes in more time")
