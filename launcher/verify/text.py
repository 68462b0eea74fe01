"""The report for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .results import Comparison, ImageParity, LoadPoint, Report


def report_lines(report: Report) -> Iterator[str]:
    """Give the report line by line."""
    yield f"kimi-serve {report.version} verify, {report.started}"
    yield from _table(report.host)
    yield from _table(report.settings)
    for comparison in report.comparisons:
        yield ""
        yield from _comparison(comparison)
    if report.loads:
        yield ""
        yield from _loads(report.loads)
    yield ""
    for promise in report.promises:
        yield f"{_verdict(promise.holds)}  {promise.text} ({promise.detail})"
    for missed in report.not_measured:
        yield f"not measured  {missed.what}: {missed.why}"
    yield ""
    yield "all that was measured holds" if report.holds else "BROKEN: see above"


def _table(rows: Mapping[str, str]) -> Iterator[str]:
    for name, value in rows.items():
        yield f"  {name:<14} {value}"


def _comparison(comparison: Comparison) -> Iterator[str]:
    yield comparison.title
    yield (
        f"  {'image':<30} {'size':>11} {'tokens':>6} {'max':>7} {'mean':>8} {'bits':>8} "
        f"{'levels':>8}  bound"
    )
    for image in comparison.images:
        yield _row(image)
    held = sum(image.holds for image in comparison.images)
    yield f"  {held} of {len(comparison.images)} within their bound, grids and tokens included"


def _row(image: ImageParity) -> str:
    size = f"{image.size[0]}x{image.size[1]}"
    verdict = "" if image.holds else "  BROKEN"
    note = f"  ({image.note})" if image.note else ""
    return (
        f"  {image.name[:30]:<30} {size:>11} {image.tokens:>6} {image.max_levels:>7.3g} "
        f"{image.mean_levels:>8.3g} {image.share:>8.2%} {image.level_share:>8.2%}  "
        f"{image.bound.text}{note}{verdict}"
    )


def _loads(loads: list[LoadPoint]) -> Iterator[str]:
    yield (
        f"{'workers':<16} {'images/s':>9} {'p50 ms':>8} {'p95 ms':>8} {'cores':>6} "
        f"{'CPU ms':>7} {'ready s':>8} {'PSS MiB':>8} {'GPU MiB':>8} {'planned':>8}"
    )
    for point in loads:
        yield (
            f"{point.workers:>3} {point.configuration:<12} {point.images_per_s:>9.1f} "
            f"{point.p50_ms:>8.1f} {point.p95_ms:>8.1f} {point.cores:>6.2f} "
            f"{point.cpu_ms_per_image:>7.1f} {point.ready_s:>8.2f} {point.pss_mib:>8.0f} "
            f"{_mib(point.gpu_total_mib):>8} {_mib(point.gpu_predicted_mib):>8}"
        )


def _mib(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"


def _verdict(holds: bool) -> str:
    return "holds " if holds else "BROKEN"
