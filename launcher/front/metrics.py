"""What /metrics shows; the pool is asked at scrape time."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterator
from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kimi_serve.preprocess.workers.pool import Pool
from kimi_serve.preprocess.workers.worker_link import WORKER_STATES
from kimi_serve.schemas.image_facts import ImageFacts
from kimi_serve.schemas.vocabulary import GpuFallback

from .admission import Admission
from .image_cache import ImageCache

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """One registry a server; workers report their times with each answer."""

    def __init__(self, pool: Pool, admission: Admission, cache: ImageCache | None) -> None:
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "kimi_serve_requests",
            "Requests answered.",
            ["route", "status"],
            registry=self._registry,
        )
        self.request_seconds = Histogram(
            "kimi_serve_request_seconds",
            "Time from the request's head to its answer's end.",
            ["route"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._stage_seconds = Histogram(
            "kimi_serve_image_stage_seconds",
            "Time of one image in one stage, in its worker.",
            ["stage"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._image_tokens = Counter(
            "kimi_serve_image_tokens", "Tokens of all images.", registry=self._registry
        )
        self._media = Counter(
            "kimi_serve_media",
            "Images fetched from their hosts or read from files, or not.",
            ["source", "outcome"],
            registry=self._registry,
        )
        self._media_bytes = Counter(
            "kimi_serve_media_bytes", "Bytes of those.", ["source"], registry=self._registry
        )
        self._media_seconds = Histogram(
            "kimi_serve_media_seconds",
            "Time to fetch or read one image, or to fail.",
            ["source"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._collectors: list[Collector] = []
        self.follow(pool, admission, cache)

    def follow(self, pool: Pool, admission: Admission, cache: ImageCache | None) -> None:
        """Ask these from now on; the counters go on."""
        for collector in self._collectors:
            self._registry.unregister(collector)
        self._collectors = [_PoolCollector(pool, admission)]
        if cache is not None:
            self._collectors.append(_CacheCollector(cache))
        for collector in self._collectors:
            self._registry.register(collector)

    def count_image(self, image: ImageFacts, *, was_kept: bool) -> None:
        """Record one image of an answer; one that the cache had took no worker's time."""
        if not was_kept:
            self._stage_seconds.labels("decode").observe(image.decode_ms / 1000)
            self._stage_seconds.labels("preprocess").observe(image.preprocess_ms / 1000)
        self._image_tokens.inc(image.num_tokens)

    def count_media(self, source: str, outcome: str, nbytes: int, seconds: float) -> None:
        """Record one image that a request named."""
        self._media.labels(source, outcome).inc()
        self._media_bytes.labels(source).inc(nbytes)
        self._media_seconds.labels(source).observe(seconds)

    def text(self) -> bytes:
        """Give everything in Prometheus's text format."""
        return generate_latest(self._registry)


class _PoolCollector(Collector):
    def __init__(self, pool: Pool, admission: Admission) -> None:
        self._pool = pool
        self._admission = admission

    def collect(self) -> Iterator[Metric]:
        states = Tally[str](snapshot.state for snapshot in self._pool.snapshots())
        workers = GaugeMetricFamily("kimi_serve_workers", "Workers by state.", labels=["state"])
        for state in WORKER_STATES:
            workers.add_metric([state], states[state])
        yield workers
        yield GaugeMetricFamily(
            "kimi_serve_queued_jobs", "Jobs that no worker has yet.", self._pool.num_queued
        )
        yield GaugeMetricFamily(
            "kimi_serve_held_bytes",
            "Bytes of unanswered requests and unsent answers.",
            self._admission.held_bytes,
        )
        yield GaugeMetricFamily(
            "kimi_serve_waiting_requests",
            "Requests that wait for their answer.",
            self._admission.num_waiting,
        )
        counts = self._pool.counts
        for name, help, value in (
            ("images", "Images processed.", counts.images),
            ("texts", "Texts and chats tokenised.", counts.texts),
            ("jobs_retried", "Jobs sent to another worker.", counts.retried),
            ("jobs_overdue", "Jobs whose worker was killed at a limit of time.", counts.overdue),
            ("worker_deaths", "Workers that ended unasked.", counts.died),
            ("worker_replacements", "Workers started in place of another.", counts.replaced),
        ):
            yield CounterMetricFamily(f"kimi_serve_{name}", help, value)
        fallbacks = CounterMetricFamily(
            "kimi_serve_gpu_fallbacks",
            "Images that a CUDA worker redid on the CPU.",
            labels=["reason"],
        )
        for reason in get_args(GpuFallback):
            fallbacks.add_metric([reason], counts.gpu_fallbacks[reason])
        yield fallbacks


class _CacheCollector(Collector):
    def __init__(self, cache: ImageCache) -> None:
        self._cache = cache

    def collect(self) -> Iterator[Metric]:
        cache = self._cache
        for name, help, value in (
            ("hits", "Images that the cache had.", cache.hits),
            ("misses", "Images that the cache did not have.", cache.misses),
            ("evictions", "Images that made room for others.", cache.evictions),
        ):
            yield CounterMetricFamily(f"kimi_serve_image_cache_{name}", help, value)
        for name, help, value in (
            ("bytes", "Memory of the kept images, all included.", cache.held_bytes),
            ("entries", "Images that are kept.", len(cache)),
        ):
            yield GaugeMetricFamily(f"kimi_serve_image_cache_{name}", help, value)
