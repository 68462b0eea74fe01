"""SIGHUP: read everything again, start the new workers, then let the old ones finish."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from operator import attrgetter
from typing import Any

from starlette.types import ASGIApp

from kimi_serve.preprocess import logs
from kimi_serve.preprocess.daemon_threads import DaemonThreads
from kimi_serve.preprocess.workers.pool import Pool
from kimi_serve.schemas.errors import ConfigError, KimiServeError
from kimi_serve.schemas.fields import setting_fields
from kimi_serve.schemas.plan import LaunchPlan

from .generations import Generation, Switch
from .pools import make_pool
from .report.render import log_lines
from .secrets.findings import without_secrets
from .secrets.known import Known

logger = logging.getLogger(__name__)

Reread = Callable[[], LaunchPlan]
MakeApp = Callable[[LaunchPlan, Pool], ASGIApp]

# Sockets are taken and engines are started once.
_FIXED_SECTIONS = ("engine", "engine.nodes")
_FIXED = ("server.host", "server.port", "server.admin_host", "server.admin_port")


def fixed_changes(old: LaunchPlan, new: LaunchPlan) -> list[str]:
    """Name the settings that differ and that only a restart can change."""
    return [
        path
        for path, field in setting_fields().items()
        if path in _FIXED or field.section in _FIXED_SECTIONS
        if attrgetter(path)(old.settings) != attrgetter(path)(new.settings)
    ]


class Reloader:
    """One reload at a time; a signal that comes during one makes another follow."""

    def __init__(
        self,
        switch: Switch,
        reread: Reread,
        make_app: MakeApp,
        base_env: Mapping[str, str],
        on_current: Callable[[Generation], None],
    ) -> None:
        self._switch = switch
        self._reread = reread
        self._make_app = make_app
        self._base_env = base_env
        self._on_current = on_current
        self._asked = asyncio.Event()
        self._threads = DaemonThreads(1)
        self._pools: set[Pool] = set()
        self._retiring: set[asyncio.Task[None]] = set()

    def ask(self) -> None:
        """Reload, or reload again once the present one is done."""
        self._asked.set()

    async def run(self) -> None:
        """Reload whenever it is asked for; never returns."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            await self._reload()

    async def close(self) -> None:
        """Stop the workers of plans that are not the current one."""
        for task in self._retiring:
            task.cancel()
        await asyncio.gather(*self._retiring, return_exceptions=True)
        for pool in list(self._pools):
            await pool.close()

    async def _reload(self) -> None:
        logger.info("SIGHUP: reading the settings again")
        try:
            # Reads files and asks the machine: not in the event loop, and either may hang.
            plan = await self._threads.run(self._reread)
            changes = fixed_changes(self._switch.current.plan, plan)
            if changes:
                raise ConfigError(f"{', '.join(changes)} cannot change without a restart")
            await self._take(plan)
        except KimiServeError as error:
            _log_refusal(error)
        except Exception:  # process border: no reload may end what serves
            logger.exception("reload failed, the plan before goes on serving")

    async def _take(self, plan: LaunchPlan) -> None:
        for level, line in log_lines(plan):
            logger.log(level, "%s", line)
        old = self._switch.current
        # Started from this thread: a fork server ends with the thread that started it.
        pool = make_pool(plan.worker_specs(), plan.settings, self._base_env, old.pool.counts)
        self._pools.add(pool)
        try:
            pool.launch()
            await pool.start()
            new = Generation(plan, pool, self._make_app(plan, pool))
        except BaseException:
            await self._close(pool)
            raise
        # All that can fail is behind us: a refused plan leaves nothing behind.
        self._pools.discard(pool)
        log = plan.settings.log
        logs.configure(log.level, log.format, process="kimi-serve")
        self._switch.turn_to(new)
        self._on_current(new)
        self._pools.add(old.pool)
        self._later(self._retire(old))
        logger.info(
            "generation %d serves: %d workers ready",
            self._switch.state.generation,
            len(plan.worker_specs()),
        )

    async def _retire(self, old: Generation) -> None:
        """Let the requests that began with the old plan finish there, then stop its workers."""
        await old.idle()
        await self._close(old.pool)
        logger.info("the workers of the plan before have finished and stopped")

    async def _close(self, pool: Pool) -> None:
        await pool.close()
        self._pools.discard(pool)

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)


def _log_refusal(error: KimiServeError) -> None:
    shown = without_secrets(error, Known())
    for finding in shown.findings if isinstance(shown, ConfigError) else ():
        logger.error("%s%s", finding, f"; {finding.help}" if finding.help else "")
    hint = f"; {shown.hint}" if shown.hint else ""
    logger.error("reload refused, the plan before goes on serving: %s%s", shown.message, hint)
