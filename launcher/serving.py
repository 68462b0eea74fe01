"""The running server: HTTP and workers in one event loop, and the signals that rule them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import signal
import socket
import time
from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Any

from kimi_serve.preprocess.workers.pool import Pool
from kimi_serve.schemas.errors import WorkerError
from kimi_serve.schemas.plan import LaunchPlan

from . import first_process
from .front.app import create_app
from .front.http_server import http_server
from .front.state import FrontState
from .generations import Generation, Switch
from .last_connections import all_told, take_no_more
from .listening import url_of
from .reload import Reloader, Reread
from .terminal import Terminal

if TYPE_CHECKING:
    from starlette.types import ASGIApp

logger = logging.getLogger(__name__)

KEEP_ALIVE_S = 75

# Whoever began to connect before the signal is connected by then.
LAST_CONNECTIONS_S = 0.1


class Serving:
    """The server from its first worker to its last answer."""

    def __init__(
        self,
        plan: LaunchPlan,
        pool: Pool,
        listener: socket.socket,
        admin: socket.socket | None,
        base_env: Mapping[str, str],
        reread: Reread,
    ) -> None:
        self._listeners = [listener] if admin is None else [listener, admin]
        self._url = url_of(*listener.getsockname()[:2])
        self._admin_port = None if admin is None else admin.getsockname()[1]
        self._state = FrontState(plan, pool)
        self._switch = Switch(Generation(plan, pool, self._make_app(plan, pool)), self._state)
        self._http = http_server(
            self._switch, keep_alive_s=KEEP_ALIVE_S, graceful_s=_drain_s(self._switch.current)
        )
        self._reloader = Reloader(self._switch, reread, self._make_app, base_env, self._watch)
        self._terminal = Terminal()
        self._signals: asyncio.Queue[signal.Signals] = asyncio.Queue()
        self._failure: asyncio.Future[WorkerError] = asyncio.get_running_loop().create_future()
        self._watching: asyncio.Task[None] | None = None

    def _make_app(self, plan: LaunchPlan, pool: Pool) -> ASGIApp:
        return create_app(plan, pool, self._admin_port, self._state)

    async def run(self) -> None:
        """Run until a signal, or until the workers cannot go on."""
        with self._handled_signals():
            serving = asyncio.create_task(self._http.serve(sockets=self._listeners))
            working = asyncio.create_task(self._work())
            obeying = asyncio.create_task(self._obey())
            try:
                tasks = [serving, working, obeying]
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in (working, obeying):
                    if task.done():
                        task.result()
            except BaseException:
                self._http.should_exit = self._http.force_exit = True
                raise
            finally:
                self._watch_no_more()
                working.cancel()
                await asyncio.gather(serving, working, return_exceptions=True)
                await self._reloader.close()
                await self._switch.current.pool.close()
                obeying.cancel()
                logger.info("stopped")
            serving.result()

    @contextlib.contextmanager
    def _handled_signals(self) -> Generator[None]:
        """Note signals for `_obey`; afterwards they change nothing any more: the end is near."""
        loop = asyncio.get_running_loop()
        numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        for number in numbers:
            loop.add_signal_handler(number, self._take, number)
        if first_process.was_hung_up():
            self._take(signal.SIGHUP)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)
                signal.signal(number, signal.SIG_IGN)

    def _take(self, number: signal.Signals) -> None:
        if number != signal.SIGHUP or self._terminal.is_gone:
            self._signals.put_nowait(number)
        elif not self._state.is_draining:
            self._reloader.ask()

    async def _work(self) -> None:
        """Start the workers, then reload when asked; raises what ends the workers."""
        await self._start()
        self._watch(self._switch.current)
        reloading = asyncio.create_task(self._reloader.run())
        try:
            ends: list[asyncio.Future[Any]] = [reloading, self._failure]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if reloading.done():
                reloading.result()
            raise self._failure.result()
        finally:
            reloading.cancel()
            await asyncio.gather(reloading, return_exceptions=True)

    async def _start(self) -> None:
        started = time.monotonic()
        generation = self._switch.current
        await generation.pool.start()
        if self._http.should_exit:
            return
        logger.info(
            "all %d workers ready in %.2f s; serving on %s",
            len(generation.plan.worker_specs()),
            time.monotonic() - started,
            self._url,
        )

    def _watch(self, generation: Generation) -> None:
        """End the server with the workers of the current generation, and of no other."""
        if not self._state.is_draining:  # else the time is running
            self._http.config.timeout_graceful_shutdown = _drain_s(generation)
        self._watch_no_more()
        self._watching = asyncio.get_running_loop().create_task(self._fail_with(generation.pool))

    def _watch_no_more(self) -> None:
        # One that waits would keep its generation for ever.
        if self._watching is not None:
            self._watching.cancel()

    async def _fail_with(self, pool: Pool) -> None:
        error = await pool.failed()
        if not self._failure.done():
            self._failure.set_result(error)

    async def _obey(self) -> None:
        """First signal: stop accepting and finish. Second: cut."""
        first = await self._signals.get()
        timeout_s = self._switch.current.plan.settings.server.drain_timeout_s
        logger.info("%s: no new connections, finishing within %g s", first.name, timeout_s)
        self._state.is_draining = True
        again = asyncio.create_task(self._signals.get())
        deadline = time.monotonic() + timeout_s
        take_no_more(self._listeners)
        await asyncio.wait([again], timeout=LAST_CONNECTIONS_S)
        if self._http.started:
            # From here on a new client is refused at once, while those that are connected stay.
            for server in self._http.servers:
                server.close()
            await all_told(self._http.server_state, again, deadline)
        left_s = math.ceil(max(0.0, deadline - time.monotonic()))
        self._http.config.timeout_graceful_shutdown = left_s
        self._http.should_exit = True
        second = await again
        logger.warning("%s again: not waiting for running requests", second.name)
        self._http.force_exit = True


def _drain_s(generation: Generation) -> int:
    return math.ceil(generation.plan.settings.server.drain_timeout_s)
