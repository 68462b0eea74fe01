"""Send many mixed real images and print the server's memory by thousand: `make soak`.

python scripts/soak.py --requests 20000 --workers 2 --clients 6
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
from collections.abc import Callable

from fault_lab.clients import Clients, Figures
from fault_lab.corpus import Known
from fault_lab.mix import soak_mix
from fault_lab.processes import Server, memory_kib, running_server

# The first requests fill heaps; growth is judged after them.
WARM_SHARE = 0.2
# Between the early and the late median of PSS.
ALLOWED_GROWTH = 1.1


class Soak:
    """Counts requests and weighs the server after each `step` of them."""

    def __init__(self, server: Server, draw: Callable[[], Known], total: int, step: int) -> None:
        self._server = server
        self._draw = draw
        self._left = total
        self._step = step
        self.pss_mib: list[float] = []

    def draw(self) -> Known:
        if self._left % self._step == 0:
            self._weigh()
        self._left -= 1
        return self._draw()

    def is_over(self) -> bool:
        return self._left <= 0

    def _weigh(self) -> None:
        server = self._server
        front = memory_kib([server.process.pid])
        workers = memory_kib(server.workers())
        fork_server = memory_kib(server.fork_servers())
        total = (front[1] + workers[1] + fork_server[1]) / 1024
        self.pss_mib.append(total)
        sys.stdout.write(
            f"{self._left:7d} to go  front RSS {front[0] / 1024:6.1f} PSS {front[1] / 1024:6.1f}  "
            f"workers RSS {workers[0] / 1024:7.1f} PSS {workers[1] / 1024:7.1f}  "
            f"all PSS {total:7.1f} MiB\n"
        )
        sys.stdout.flush()

    @property
    def growth(self) -> float:
        """The late median over the early one."""
        warm = self.pss_mib[int(len(self.pss_mib) * WARM_SHARE) :]
        half = max(1, len(warm) // 2)
        return statistics.median(warm[half:] or warm) / statistics.median(warm[:half])


async def run_soak(*, requests: int, step: int, workers: int, clients: int) -> tuple[Figures, Soak]:
    """Send the requests; gives what became of them, and the weights."""
    mix = soak_mix(seed=1)
    async with running_server("--tokenizer-worker-num", str(workers)) as server:
        soak = Soak(server, mix.draw, requests, step)
        load = Clients(server.address, soak.draw, soak.is_over)
        await load.run(clients)
    return load.figures, soak


def main() -> int:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--step", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--clients", type=int, default=6)
    given = parser.parse_args()
    figures, soak = asyncio.run(
        run_soak(
            requests=given.requests,
            step=given.step,
            workers=given.workers,
            clients=given.clients,
        )
    )
    sys.stdout.write("\n".join(figures.lines()) + "\n")
    sys.stdout.write(f"late median of PSS over early: {soak.growth:.3f}\n")
    return 0 if figures.is_clean and soak.growth <= ALLOWED_GROWTH else 1


if __name__ == "__main__":
    sys.exit(main())
