"""docs/benchmarks.md from what was measured."""

from __future__ import annotations

import datetime
import os
import platform
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bars import BARS, Ratios, missed

HEAD = """\
# Benchmarks

Made by `make bench ARGS=--save`; the code is in [benchmarks/](../benchmarks), downloads nothing.
Candidates of a row take turns in one process with one thread, each round in another order, and
the medians of process CPU time are compared: the ratios hold on a busy machine, the times are those
of this one. Pictures are smooth colour with sensor-like noise, JPEG quality 85. Peers are called,
not copied; "malloc tuned" gives them a glibc that keeps their pages. `make bench ARGS=--check`
compares with [ratios.json](../benchmarks/ratios.json), never with times.
"""


@dataclass
class Results:
    """All that one run measured."""

    ratios: Ratios = field(default_factory=dict[str, float])
    rows: dict[str, dict[str, float]] = field(default_factory=dict[str, dict[str, float]])
    peers: dict[str, dict[str, float]] = field(default_factory=dict[str, dict[str, float]])
    versions: dict[str, str] = field(default_factory=dict[str, str])
    handover: dict[str, float] = field(default_factory=dict[str, float])
    http: dict[str, Any] = field(default_factory=dict[str, Any])
    texts: dict[str, Any] = field(default_factory=dict[str, Any])
    fleet: dict[str, Any] = field(default_factory=dict[str, Any])

    def add_race(self, name: str, suffix: str, found: dict[str, Any]) -> None:
        """Take what peer.py printed: times of ours, ratios of all."""
        for library, version in found.get("versions", {}).items():
            self.versions.setdefault(library, version)
        for picture, times in found.get("milliseconds", {}).items():
            if name == "none" and not suffix:
                self.rows[picture] = times
            for candidate, value in times.items():
                if candidate not in ("native", "decode"):
                    ratio = value / times["native"]
                    self.ratios[f"{picture}: {candidate}{suffix} / native"] = ratio
                    self.peers.setdefault(f"{candidate}{suffix}", {})[picture] = ratio
            if name == "none" and not suffix:
                order = times["checkpoint order"]
                self.ratios[f"{picture}: checkpoint order / pure"] = order / times["pure"]
                self.ratios[f"{picture}: native / decode"] = times["native"] / times["decode"]


def page(results: Results) -> str:
    """Give the whole page."""
    parts = [
        HEAD,
        _machine(results),
        _bars(results.ratios),
        _rows(results),
        _stages(results.ratios),
    ]
    parts += [_handover(results), _http(results), _scaling(results), _texts(results)]
    parts.append(_fleet(results))
    return "\n".join(part for part in parts if part)


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _machine(results: Results) -> str:
    info = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    model = re.search(r"model name\s*: (.*)", info)
    cores = len(os.sched_getaffinity(0))
    versions = ", ".join(f"{name} {version}" for name, version in results.versions.items())
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return (
        f"{datetime.date.today()}: {cores} cores of {model[1] if model else 'a CPU'}, shared (load "
        f"{load}), Linux {platform.release().partition('-')[0]}; {versions}.\n"
    )


def _bars(ratios: Ratios) -> str:
    rows: list[list[str]] = []
    for bar in BARS:
        ratio = ratios.get(bar.name)
        if ratio is None:
            rows.append([bar.name, bar.words, "-", "not measured"])
        else:
            verdict = "pass" if bar.fits(ratio) else "**missed**"
            rows.append([bar.name, bar.words, f"{ratio:.2f}", verdict])
    text = "## Bars\n\n" + table(["ratio", "bar", "measured", ""], rows)
    reasons = dict.fromkeys(bar.reason for bar in missed(ratios) if bar.reason)
    for reason in reasons:
        names = " and ".join(bar.name for bar in missed(ratios) if bar.reason == reason)
        text += f"\nMissed, {names}: {reason}\n"
    return text


def _rows(results: Results) -> str:
    names = list(results.peers)
    head = ["picture", "decode", "native", "pure", *(f"{name} / native" for name in names)]
    rows: list[list[str]] = []
    for picture, times in results.rows.items():
        own = [f"{times[name]:.2f} ms" for name in ("decode", "native", "pure")]
        theirs = [
            f"{results.peers[name][picture]:.1f} x" if picture in results.peers[name] else "-"
            for name in names
        ]
        rows.append([picture, *own, *theirs])
    return "## Bytes in, float32 patches out\n\n" + table(head, rows)


def _stages(ratios: Ratios) -> str:
    stages = {
        name: ratio
        for name, ratio in ratios.items()
        if name.startswith(("resize", "patch")) and ratio != 1
    }
    rows = [[name, f"{ratio:.2f}"] for name, ratio in stages.items()]
    return "## Stages\n\n" + table(["ratio", ""], rows)


def _handover(results: Results) -> str:
    times = ", ".join(f"{name} {value:.1f} ms" for name, value in results.handover.items())
    return f"## Hand-over of 25 MB\n\nCPU of both sides: {times}.\n" if times else ""


def _http(results: Results) -> str:
    text = ""
    for picture, rows in results.http.items():
        if "bare decode" in rows:
            text += f"\n{picture}, 16 workers, 8 connections:\n\n" + _http_table(rows)
    if not text:
        return ""
    words = (
        "Images per second of the clock include the light client, which shares the cores; CPU is "
        "that of all server processes per image. The bar compares CPU, so the client is excluded: "
        "a shared machine gives sixteen processes more of its time than two, which flatters rates. "
        "decode + send is the floor of any server here: it decodes and sends bytes that are ready."
    )
    if any(row.startswith("vllm") for rows in results.http.values() for row in rows):
        words += " `vllm launch render` runs on the CPU without its cache of images."
    return f"## HTTP end to end\n\n{words}\n{text}"


def _http_table(rows: dict[str, dict[str, float]]) -> str:
    decode = rows["bare decode"]
    head = ["", "images/s", "server CPU", "client CPU", "rate / decode", "CPU: decode / server"]
    lines = [
        [
            way,
            f"{row['rate']:.1f}",
            f"{row['server_ms']:.1f} ms",
            f"{row['client_ms']:.1f} ms" if "client_ms" in row else "-",
            f"{row['rate'] / decode['rate']:.2f}",
            f"{decode['server_ms'] / row['server_ms']:.2f}",
        ]
        for way, row in rows.items()
    ]
    return table(head, lines)


def _scaling(results: Results) -> str:
    rows = results.http.get("scaling", {})
    lines = [[n, f"{row['rate']:.1f}", f"{row['server_ms']:.1f} ms"] for n, row in rows.items()]
    head = ["1080p JPEG, safetensors float32", "images/s", "server CPU"]
    return "## 1 to 16 workers\n\n" + table(head, lines) if rows else ""


def _texts(results: Results) -> str:
    lines = [
        [accept.rpartition("/")[2], name, *(f"{times[part]:.1f}" for part in ("p50", "p90", "p99"))]
        for accept, rows in results.texts.items()
        for name, times in rows.items()
    ]
    head = ["answers of the images", "milliseconds", "p50", "p90", "p99"]
    title = "## Texts beside four clients with eight images of 1440x3120 each, two workers\n\n"
    return title + table(head, lines) if lines else ""


def _fleet(results: Results) -> str:
    lines = [
        [name, f"{row['ready_s']:.2f} s", f"{row['pss_mb']:.0f} MB"]
        for name, row in results.fleet.items()
    ]
    return (
        "## Start of 16 workers\n\n" + table(["", "all ready", "PSS idle"], lines) if lines else ""
    )
