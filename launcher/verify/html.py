"""The report as one HTML page that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from .results import Comparison, LoadPoint, Report
from .svg import Series, line_plot

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 62rem; padding: 0 1rem;
  color: #1c1f23; background: #fff; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
table { border-collapse: collapse; font-size: 13px; width: 100%; }
th, td { text-align: right; padding: 2px 8px; border-bottom: 1px solid #e3e6ea; }
th:first-child, td:first-child, td.text, th.text { text-align: left; }
tr.broken td { background: #ffe3e3; }
.verdict { padding: .6rem 1rem; border-radius: 6px; font-weight: 600; }
.verdict.holds { background: #e6fcf5; } .verdict.broken { background: #ffe3e3; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(22rem, 1fr)); gap: 1rem; }
svg { width: 100%; border: 1px solid #e3e6ea; border-radius: 6px; }
svg line { stroke: #e9ecef; } svg polyline { fill: none; stroke-width: 2; }
svg text { font-size: 11px; fill: #495057; } svg .title { font-size: 13px; font-weight: 600; }
svg .end { text-anchor: end; } svg .mid { text-anchor: middle; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0 1rem; font-size: 13px; }
dd { margin: 0; }
""".strip()


def report_page(report: Report) -> str:
    """Give the whole page."""
    verdict = (
        '<p class="verdict holds">All that was measured holds.</p>'
        if report.holds
        else '<p class="verdict broken">Something is broken: see the rows in red.</p>'
    )
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>kimi-serve verify, {escape(report.started)}</title>",
        f"<style>{_STYLE}</style></head><body>",
        f"<h1>kimi-serve {escape(report.version)} verify</h1>",
        f"<p>{escape(report.started)}</p>",
        verdict,
        _facts(report.host),
        _facts(report.settings),
        *_load_part(report.loads),
        *(_comparison(comparison) for comparison in report.comparisons),
        "<h2>Promises</h2>",
        _table(
            ("", "promise", "how it was seen"),
            (
                (("holds" if each.holds else "broken", each.text, each.detail), each.holds)
                for each in report.promises
            ),
            texts=(1, 2),
        ),
        "<h2>Not measured</h2>",
        _table(
            ("what", "why"),
            (((each.what, each.why), True) for each in report.not_measured),
            texts=(1,),
        )
        if report.not_measured
        else "<p>Nothing was left out.</p>",
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def _facts(rows: Mapping[str, str]) -> str:
    pairs = (f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in rows.items())
    return f"<dl>{''.join(pairs)}</dl>"


def _comparison(comparison: Comparison) -> str:
    header = (
        "image", "size", "tokens", "max levels", "mean levels", "bits differ", "levels differ",
        "grid and tokens", "bound", "",
    )  # fmt: skip
    rows = (
        (
            (
                image.name,
                f"{image.size[0]} x {image.size[1]}",
                str(image.tokens),
                f"{image.max_levels:.3g}",
                f"{image.mean_levels:.3g}",
                f"{image.share:.2%}",
                f"{image.level_share:.2%}",
                "equal" if image.grids_equal and image.tokens_equal else "differ",
                image.bound.text,
                image.note,
            ),
            image.holds,
        )
        for image in comparison.images
    )
    return f"<h2>{escape(comparison.title)}</h2>{_table(header, rows, texts=(8, 9))}"


def _load_part(loads: Sequence[LoadPoint]) -> Iterable[str]:
    if not loads:
        return
    yield "<h2>Throughput, latency, memory by worker count</h2>"
    yield '<div class="plots">'
    yield line_plot("Throughput", "workers", "images/s", _series(loads, "images_per_s"))
    yield line_plot("Latency, median", "workers", "ms", _series(loads, "p50_ms"))
    yield line_plot("Latency, 95 of 100", "workers", "ms", _series(loads, "p95_ms"))
    yield line_plot("Processor use", "workers", "cores", _series(loads, "cores"))
    yield line_plot("Memory of all workers (PSS)", "workers", "MiB", _series(loads, "pss_mib"))
    measured = _series(loads, "gpu_total_mib")
    planned = [
        Series(f"{line.name}, planned", line.points, is_dashed=True)
        for line in _series(loads, "gpu_predicted_mib")
    ]
    yield line_plot("GPU memory", "workers", "MiB", [*measured, *planned])
    yield "</div>"
    yield _table(
        ("configuration", "workers", "images", "images/s", "p50 ms", "p95 ms", "cores",
         "CPU ms an image", "ready s", "PSS MiB", "GPU MiB", "planned"),
        ((_load_row(point), True) for point in loads),
    )  # fmt: skip


def _series(loads: Sequence[LoadPoint], name: str) -> list[Series]:
    found: list[Series] = []
    for configuration in dict.fromkeys(point.configuration for point in loads):
        points = [
            (float(point.workers), float(getattr(point, name)))
            for point in loads
            if point.configuration == configuration and getattr(point, name) is not None
        ]
        found.append(Series(configuration, points))
    return found


def _load_row(point: LoadPoint) -> tuple[str, ...]:
    return (
        point.configuration,
        str(point.workers),
        str(point.images),
        f"{point.images_per_s:.1f}",
        f"{point.p50_ms:.1f}",
        f"{point.p95_ms:.1f}",
        f"{point.cores:.2f}",
        f"{point.cpu_ms_per_image:.1f}",
        f"{point.ready_s:.2f}",
        f"{point.pss_mib:.0f}",
        "" if point.gpu_total_mib is None else f"{point.gpu_total_mib:.0f}",
        "" if point.gpu_predicted_mib is None else f"{point.gpu_predicted_mib:.0f}",
    )


def _table(
    header: Sequence[str],
    rows: Iterable[tuple[Sequence[str], bool]],
    texts: Sequence[int] = (),
) -> str:
    """Make a table; rows that do not hold are red, columns `texts` are aligned left."""
    kinds = [' class="text"' if index in texts else "" for index in range(len(header))]
    head = "".join(
        f"<th{kind}>{escape(name)}</th>" for kind, name in zip(kinds, header, strict=True)
    )
    lines: list[str] = []
    for cells, holds in rows:
        body = "".join(
            f"<td{kind}>{escape(cell)}</td>" for kind, cell in zip(kinds, cells, strict=True)
        )
        lines.append(f"<tr>{body}</tr>" if holds else f'<tr class="broken">{body}</tr>')
    return f"<table><tr>{head}</tr>{''.join(lines)}</table>"
