"""What the front keeps when a reload puts another plan and other workers behind it.

Nothing of a plan before stays with it.
"""

from __future__ import annotations

import time

from kimi_serve.preprocess.workers.pool import Pool
from kimi_serve.schemas.plan import LaunchPlan

from .admission import Admission
from .image_cache import ImageCache
from .metrics import Metrics


class FrontState:
    """Bytes held, images kept, counters, and how often the plan was read."""

    def __init__(self, plan: LaunchPlan, pool: Pool) -> None:
        server = plan.settings.server
        self.admission = Admission(server.max_body_bytes, server.max_queued_bytes)
        self.cache = ImageCache()
        self.metrics = Metrics(pool, self.admission, None)
        self.started = int(time.time())
        self.generation = 1
        # Whether the server is about to stop: every answer ends its connection.
        self.is_draining = False
        self.follow(plan, pool)

    def follow(self, plan: LaunchPlan, pool: Pool) -> None:
        """Bound and show what a plan and its workers do, from the moment they serve."""
        server = plan.settings.server
        self.admission.limit(
            server.max_body_bytes, server.max_queued_bytes, server.max_queued_requests
        )
        self.cache.limit(plan.settings.image.cache_bytes)
        is_kept = plan.settings.image.cache_bytes > 0
        self.metrics.follow(pool, self.admission, self.cache if is_kept else None)
