"""The workers of a plan."""

from __future__ import annotations

from collections.abc import Mapping

from kimi_serve.preprocess.workers.fleet import PoolCounts
from kimi_serve.preprocess.workers.pool import Pool
from kimi_serve.schemas.plan import LaunchPlan


def make_pool(
    plan: LaunchPlan, base_env: Mapping[str, str], counts: PoolCounts | None = None
) -> Pool:
    """Give the workers, not yet started; `counts` are those of the plan before."""
    server = plan.settings.server
    return Pool(
        plan.worker_specs(),
        base_env=base_env,
        start_timeout_s=server.start_timeout_s,
        job_timeout_s=server.request_timeout_s,
        image_timeout_s=plan.settings.image.timeout_s,
        text_timeout_s=plan.settings.tokenizer.timeout_s,
        counts=counts,
    )
