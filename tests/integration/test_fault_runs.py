"""Short forms of `make faults` and `make soak`: nothing lost, nothing wrong, nothing kept."""

from __future__ import annotations

import asyncio
import signal

from faults import run_faults
from soak import run_soak


def test_a_killer_costs_no_answer() -> None:
    figures, lines = asyncio.run(run_faults(seconds=12, workers=3, clients=6, pause_s=0.4, seed=5))
    report = "\n".join(lines)
    assert figures.is_clean, report
    assert figures.answered > 0, report
    assert signal.SIGKILL.name in report


def test_a_short_soak_is_answered_and_weighed() -> None:
    figures, soak = asyncio.run(run_soak(requests=300, step=100, workers=2, clients=4))
    assert figures.is_clean, figures.lines()
    assert figures.answered >= 300
    # Heaps are still being filled: a leak shows in the long form.
    assert len(soak.pss_mib) == 3
