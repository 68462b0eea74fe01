"""A pool of workers as the settings have it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kimi_serve.preprocess.workers.fleet import PoolCounts
from kimi_serve.preprocess.workers.pool import Pool
from kimi_serve.schemas.settings import Settings
from kimi_serve.schemas.worker import WorkerSpec


def make_pool(
    specs: Sequence[WorkerSpec],
    settings: Settings,
    base_env: Mapping[str, str],
    counts: PoolCounts | None = None,
) -> Pool:
    """Give the workers, not yet started; `counts` are those of the plan before."""
    return Pool(
        specs,
        base_env=base_env,
        start_timeout_s=settings.server.start_timeout_s,
        job_timeout_s=settings.server.request_timeout_s,
        image_timeout_s=settings.image.timeout_s,
        text_timeout_s=settings.tokenizer.timeout_s,
        counts=counts,
    )
