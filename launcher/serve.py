"""`kimi-serve` itself: bind, log the plan, start the workers, serve, drain, stop."""

from __future__ import annotations

import logging
import os
import resource
import signal
from collections.abc import Callable, Mapping
from types import FrameType

from kimi_serve.schemas.errors import PlanError
from kimi_serve.schemas.plan import LaunchPlan

from .listening import take_admin_port, take_port
from .pools import make_pool
from .refusal import cannot_start, refusal
from .report.render import log_lines, plan_json
from .terminal import Terminal

logger = logging.getLogger(__name__)

# A worker's socket, log, memory (twice) and pid descriptors, and what its start takes for a moment.
FILES_A_WORKER = 7
FILES_FOR_CLIENTS = 100


def serve(
    plan: LaunchPlan,
    base_env: Mapping[str, str],
    reread: Callable[[], LaunchPlan],
    *,
    start_anyway: bool = False,
) -> None:
    """Run until SIGTERM or Ctrl-C; raises WorkerError when the workers cannot go on.

    `base_env` is what workers may inherit their search paths from. `reread` makes the plan of a
    reload, from the settings as they are then. A plan with findings that are errors is refused,
    unless `start_anyway` is given.
    """
    for level, line in log_lines(plan):
        logger.log(level, "%s", line)
    refused = refusal(plan)
    if refused is not None and not start_anyway:
        raise refused
    impossible = cannot_start(plan)
    if impossible is not None:
        raise impossible
    if plan.launch is not None:
        from .supervise.engine import memory_note, run_engine

        _note_hangups()
        run_engine(
            plan.launch,
            plan.settings,
            base_env,
            memory_note=memory_note(plan.findings, plan.budget),
            plan=plan_json(plan),
        )
        return
    _raise_file_limit(len(plan.worker_specs()))
    server = plan.settings.server
    with (
        take_port(server.host, server.port) as listener,
        take_admin_port(server, listener) as admin,
    ):
        pool = make_pool(plan.worker_specs(), plan.settings, base_env)
        # The fork server imports while the web stack is imported here.
        pool.launch()
        import uvloop

        from .serving import Serving

        async def run() -> None:
            await Serving(plan, pool, listener, admin, base_env, reread).run()

        uvloop.run(run())


def _note_hangups() -> None:
    """Say that an engine is not reloaded; stop when the signal is for the end of the terminal."""
    terminal = Terminal()

    def on_hangup(_number: int, _frame: FrameType | None) -> None:
        if terminal.is_gone:
            os.kill(os.getpid(), signal.SIGTERM)
        else:
            logger.warning("SIGHUP: an engine is not reloaded; restart to change its settings")

    signal.signal(signal.SIGHUP, on_hangup)


def _raise_file_limit(workers: int) -> None:
    """Take the descriptors that the workers and some clients need, or say that there are none."""
    needed = workers * FILES_A_WORKER + FILES_FOR_CLIENTS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and needed > hard:
        raise PlanError(
            f"{workers} workers need {needed} open files, and the limit is {hard}",
            hint="raise it (ulimit -Hn, LimitNOFILE=) or lower tokenizer.worker_num",
        )
    # A reload has two fleets for a moment.
    wanted = needed + workers * FILES_A_WORKER if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
