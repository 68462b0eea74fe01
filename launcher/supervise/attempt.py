"""One life of an engine: started, ready, stopped or ended by itself."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Coroutine, Generator, Mapping
from dataclasses import dataclass
from typing import Any

from kimi_serve.schemas.engine_launch import EngineLaunch
from kimi_serve.schemas.settings import Settings

from ..machine.memory_events import count_oom_kills
from .exits import End, Phase
from .idleness import Work
from .keeper_link import KeeperLink
from .output import Output
from .readiness import LineCount, Watch, stay_ready
from .signals import StopSignals
from .state import EngineState

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Supervision:
    """What every attempt is made with."""

    launch: EngineLaunch
    settings: Settings
    base_env: Mapping[str, str]
    memory_note: str
    signals: StopSignals
    state: EngineState


class Attempt:
    """Start the engine once; `run` gives how it ended, None when we were asked to stop it."""

    def __init__(self, supervision: Supervision) -> None:
        self._launch = supervision.launch
        self._settings = supervision.settings
        self._base_env = supervision.base_env
        self._memory_note = supervision.memory_note
        self._signals = supervision.signals
        self._state = supervision.state
        self._lines = LineCount(supervision.launch.readiness)
        self._link = KeeperLink()
        self._watched = Watch(supervision.launch, self._lines, self._link.descendants)
        self._unready: tuple[str, str] = ("", "")
        self._output = Output(
            supervision.launch.engine, supervision.launch.secrets(), self._lines.see
        )
        self._started = time.monotonic()
        self._ready_since: float | None = None
        self.ready_for_s: float | None = None
        # It has answered, or been there: it was not only believed to be ready.
        self.is_proven = False

    async def run(self) -> End | None:
        """Run to the end; nothing of the engine is left afterwards."""
        kills_before = count_oom_kills()
        launch = self._launch
        try:
            self._link.start(
                launch.argv(),
                launch.environment(self._base_env),
                self._base_env,
                self._output.writers,
            )
        except BaseException:
            self._output.start()
            self._output.finish()
            raise
        self._output.start()
        is_timeout = False
        try:
            is_timeout = await self._watch()
        finally:
            await self._end()
        if self._signals.first.is_set():
            return None
        kills = count_oom_kills()
        return End(
            launch.engine,
            launch.head[0],
            self._link.ended.result(),
            self._phase(),
            self._output.last_lines(),
            self._settings.engine.startup_timeout_s if is_timeout else None,
            None if kills is None or kills_before is None else kills - kills_before,
            self._memory_note,
            self._unready,
        )

    def _phase(self) -> Phase:
        return "starting" if self._ready_since is None else "ready"

    async def _watch(self) -> bool:
        """Wait for the end or for a stop; True when the start took too long."""
        ended = self._link.ended
        with _task(self._signals.first.wait()) as stop:
            with _task(self._become_ready()) as ready:
                limit_s = self._settings.engine.startup_timeout_s
                waited = {ended, stop, ready}
                await asyncio.wait(waited, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
                if ready.done() and not ended.done():
                    ready.result()
                    self.is_proven = bool(self._launch.readiness.url)
                    self._note_ready()
            if not ended.done() and not stop.done():
                if self._ready_since is None and not self._is_believed():
                    await self._stop(self._steps_without_work())
                    return True
                with _task(self._stay_ready()):
                    await asyncio.wait({ended, stop}, return_when=asyncio.FIRST_COMPLETED)
            if self._ready_since is not None:
                self.ready_for_s = time.monotonic() - self._ready_since
            if not ended.done():
                self._state.become("draining")
                await self._stop(self._steps())
        return False

    async def _become_ready(self) -> None:
        self._state.pid = await asyncio.shield(self._link.started)
        await self._watched.become_ready()

    def _is_believed(self) -> bool:
        """Tell whether an engine that did not answer in time counts as ready all the same."""
        limit_s = self._settings.engine.startup_timeout_s
        self._unready = self._watched.explain()
        if self._launch.readiness.required or not self._link.started.done():
            logger.error(
                "not ready within %g s: stopping the engine; %s", limit_s, self._unready[0]
            )
            return False
        logger.warning(
            "not seen ready within %g s, but it runs, which has to do: %s",
            limit_s,
            self._unready[0],
        )
        self._note_ready()
        return True

    async def _stay_ready(self) -> None:
        """Look after it for the load balancers that ask the status server."""
        if self._settings.engine.status_port is not None and self.is_proven:
            await stay_ready(self._launch, self._state)

    def _note_ready(self) -> None:
        self._ready_since = time.monotonic()
        self._state.become("ready")
        url = self._launch.readiness.url if self.is_proven else ""
        logger.info(
            "%s ready in %.2f s (pid %d)%s",
            self._launch.engine,
            self._ready_since - self._started,
            self._link.started.result(),
            f"; serving on {url}" if url else "",
        )

    async def _stop(self, steps: Coroutine[Any, Any, None]) -> None:
        """Take the steps until the engine ended; a second signal cuts them short."""
        with _task(steps) as stopping, _task(self._signals.second.wait()) as again:
            waited = {self._link.ended, stopping, again}
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if again.done() and not self._link.ended.done():
                logger.warning("%s again: killing the engine", self._signals.name)
            elif stopping.done():
                stopping.result()

    def _steps(self) -> Coroutine[Any, Any, None]:
        logger.info("%s: stopping the engine", self._signals.name)
        has_work = self._ready_since is not None and self._launch.stopping.has_requests
        return self._steps_with_work() if has_work else self._steps_without_work()

    async def _steps_with_work(self) -> None:
        drain_s = self._launch.stopping.drain_timeout_s
        key = self._settings.server.api_key
        work = Work(self._launch, key.get_secret_value() if key else None)
        if not self._launch.stopping.drains:
            # This engine goes on taking requests after SIGTERM, or cuts those of other workers.
            try:
                async with asyncio.timeout(drain_s):
                    await work.become_idle()
            except TimeoutError:
                self._tell_unfinished(work)
            await self._steps_without_work()
            return
        self._link.term()
        if not await self._ended_within(drain_s):
            self._tell_unfinished(work)
            self._link.term_all()
            await self._ended_within(self._settings.engine.kill_timeout_s)
            self._tell_kill()

    def _tell_unfinished(self, work: Work) -> None:
        drain_s = self._launch.stopping.drain_timeout_s
        known = work.describe(self._link.started.result())
        logger.warning("not finished after %g s: %s; stopping all the same", drain_s, known)

    async def _steps_without_work(self) -> None:
        """TERM to the first process, which tells the rest; to all at half time; then KILL."""
        half_s = self._settings.engine.kill_timeout_s / 2
        self._link.term()
        if not await self._ended_within(half_s):
            self._link.term_all()
            await self._ended_within(half_s)
            self._tell_kill()

    def _tell_kill(self) -> None:
        if not self._link.ended.done():
            timeout_s = self._settings.engine.kill_timeout_s
            logger.warning("%g s after SIGTERM the engine still runs: killing it", timeout_s)

    async def _ended_within(self, timeout_s: float) -> bool:
        await asyncio.wait({self._link.ended}, timeout=timeout_s)
        return self._link.ended.done()

    async def _end(self) -> None:
        """Have the keeper end what is left, kill what does not go, and read the last output."""
        if self._link.ended.done():
            with _task(self._signals.second.wait()) as again:
                # The keeper gives leftovers its own short grace.
                waited = {self._link.gone, again}
                await asyncio.wait(waited, timeout=10, return_when=asyncio.FIRST_COMPLETED)
        await self._link.close()
        self._state.pid = None
        if not self._link.gone.done():
            logger.error("processes of the engine cannot be killed; the keeper goes on trying")
        await asyncio.to_thread(self._output.finish)


@contextlib.contextmanager
def _task(work: Coroutine[Any, Any, Any]) -> Generator[asyncio.Task[Any]]:
    """Run a coroutine beside the block and end it with the block."""
    task = asyncio.get_running_loop().create_task(work)
    try:
        yield task
    finally:
        task.cancel()
