"""Kill a loaded server's processes at random and count what clients lose: `make faults`.

python scripts/faults.py --seconds 120 --workers 4 --clients 12 --pause 0.5 --seed 1
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time

from fault_lab.clients import CANCELLED_SHARE, Clients, Figures
from fault_lab.mix import fault_mix
from fault_lab.processes import Killer, running_server


async def run_faults(
    *, seconds: float, workers: int, clients: int, pause_s: float, seed: int
) -> tuple[Figures, list[str]]:
    """Give the figures and all lines to print."""
    mix = fault_mix(seed)
    async with running_server("--tokenizer-worker-num", str(workers)) as server:
        end = time.monotonic() + seconds

        def is_over() -> bool:
            return time.monotonic() >= end

        load = Clients(
            server.address, mix.draw, is_over, cancelled_share=CANCELLED_SHARE, seed=seed
        )
        killer = Killer(server, pause_s, seed)
        async with asyncio.TaskGroup() as group:
            group.create_task(load.run(clients))
            group.create_task(killer.run(is_over))
    lines = [
        f"{seconds:g} s, {workers} workers, {clients} clients, a signal every {pause_s:g} s "
        f"on average, seed {seed}",
        *load.figures.lines(),
        f"signals sent       {killer.sent.total()}",
        *(f"  {name}: {count}" for name, count in sorted(killer.sent.items())),
        f"workers that ended {server.counts['ended:']}",
        f"reloads            {server.counts['generation']}",
        f"reloads refused    {server.counts['reload refused']}",
    ]
    return load.figures, lines


def main() -> int:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--clients", type=int, default=12)
    parser.add_argument("--pause", type=float, default=0.5)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    figures, lines = asyncio.run(
        run_faults(
            seconds=given.seconds,
            workers=given.workers,
            clients=given.clients,
            pause_s=given.pause,
            seed=given.seed,
        )
    )
    sys.stdout.write("\n".join(lines) + "\n")
    return 0 if figures.is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
