"""Whether /dev/shm holds what the ranks of an engine share: KS307 shared-memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kimi_serve.schemas.findings import Finding

from ..engines.gpus import WIDTHS
from ..resolver.situation import Situation
from .wording import at

# What Docker and Kubernetes give a container that asks for nothing.
_DEFAULT_MIB = 64


def small_shared_memory(situation: Situation) -> Iterator[Finding]:
    """Find several ranks in a container with the default shared memory."""
    width = None if situation.kind == "none" else situation.flag(WIDTHS[situation.kind][0])
    number = situation.whole(width)
    size = situation.hardware.shm_mib if situation.hardware else None
    if width is None or number is None or number < 2 or size is None or size > _DEFAULT_MIB:
        return
    message = (
        f"{width.name} {number} with {size} MiB at /dev/shm: NCCL and the ranks share their "
        "memory there, and die of it when it is full"
    )
    help = "docker run --shm-size 32g, or in Kubernetes an emptyDir in memory at /dev/shm"
    yield at("KS307", width.at_value, message, help)


RULES: tuple[Callable[[Situation], Iterator[Finding]], ...] = (small_shared_memory,)
