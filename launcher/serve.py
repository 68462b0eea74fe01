"""`kimi-serve` itself: bind, log the plan, start the workers, serve, drain, stop."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import math
import resource
import signal
import socket
import time
from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING

from kimi_serve.preprocess.workers.pool import Pool
from kimi_serve.schemas.errors import PlanError
from kimi_serve.schemas.plan import LaunchPlan
from kimi_serve.schemas.settings import ServerSettings

from .report.render import log_lines

if TYPE_CHECKING:
    import uvicorn

logger = logging.getLogger(__name__)

# A worker's socket, log, memory and pid descriptors, and what its start takes for a moment.
FILES_A_WORKER = 6
FILES_FOR_CLIENTS = 100


def serve(plan: LaunchPlan, base_env: Mapping[str, str]) -> None:
    """Run until SIGTERM or Ctrl-C; raises WorkerError when the workers cannot go on.

    `base_env` is what workers may inherit their search paths from.
    """
    for level, line in log_lines(plan):
        logger.log(level, "%s", line)
    if plan.settings.engine.kind != "none":
        kind = plan.settings.engine.kind
        raise PlanError(
            f"engine.kind is {kind}: this version plans for {kind} but does not start it yet",
            hint="use the plan's devices and findings, or engine.kind none for the built-in "
            "workers",
        )
    _raise_file_limit(len(plan.worker_specs()))
    with _bind(plan.settings.server) as listener:
        server = plan.settings.server
        pool = Pool(
            plan.worker_specs(),
            base_env=base_env,
            start_timeout_s=server.start_timeout_s,
            job_timeout_s=server.request_timeout_s,
        )
        # The fork server imports while the web stack is imported here.
        pool.launch()
        import uvloop

        uvloop.run(_Serving(plan, pool, listener).run())


def _raise_file_limit(workers: int) -> None:
    """Take the descriptors that the workers and some clients need, or say that there are none."""
    needed = workers * FILES_A_WORKER + FILES_FOR_CLIENTS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and needed > hard:
        raise PlanError(
            f"{workers} workers need {needed} open files, and the limit is {hard}",
            hint="raise it (ulimit -Hn, LimitNOFILE=) or lower tokenizer.worker_num",
        )
    wanted = needed if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


@contextlib.contextmanager
def _bind(server: ServerSettings) -> Generator[socket.socket]:
    """Take the port before anything is started."""
    family = socket.AF_INET6 if ":" in server.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((server.host, server.port))
        except OSError as error:
            raise _bind_error(server, error) from None
        yield listener
    finally:
        listener.close()


def _bind_error(server: ServerSettings, error: OSError) -> PlanError:
    place = f"{server.host}:{server.port}"
    if error.errno == errno.EADDRINUSE:
        return PlanError(
            f"{place} is in use by another program",
            hint=f"stop it (`ss -ltnp 'sport = :{server.port}'` names it) or choose another "
            "server.port; 0 takes a free one",
        )
    reason = error.strerror or str(error)
    return PlanError(f"cannot listen on {place}: {reason}", hint="check server.host, server.port")


class _Serving:
    """The running server: HTTP and pool in one event loop, and the signals that end them."""

    def __init__(self, plan: LaunchPlan, pool: Pool, listener: socket.socket) -> None:
        self._plan = plan
        self._pool = pool
        self._listener = listener
        host, port = listener.getsockname()[:2]
        self._url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        self._http = _http_server(plan, pool)
        self._signals: asyncio.Queue[signal.Signals] = asyncio.Queue()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        # Handlers only note the signal; `_obey` acts on it.
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signals.put_nowait, number)
        serving = asyncio.create_task(self._http.serve(sockets=[self._listener]))
        working = asyncio.create_task(self._work())
        obeying = asyncio.create_task(self._obey())
        try:
            await asyncio.wait([serving, working], return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                working.result()
        except BaseException:
            self._http.should_exit = self._http.force_exit = True
            raise
        finally:
            working.cancel()
            await asyncio.gather(serving, working, return_exceptions=True)
            await self._pool.close()
            obeying.cancel()
            logger.info("stopped")

    async def _work(self) -> None:
        """Start the workers, then wait for what ends them; never returns, only raises."""
        await self._start()
        raise await self._pool.failed()

    async def _start(self) -> None:
        started = time.monotonic()
        await self._pool.start()
        if self._http.should_exit:
            return
        logger.info(
            "all %d workers ready in %.2f s; serving on %s",
            len(self._plan.worker_specs()),
            time.monotonic() - started,
            self._url,
        )

    async def _obey(self) -> None:
        """First signal: stop accepting and finish. Second: cut."""
        first = await self._signals.get()
        timeout_s = self._plan.settings.server.drain_timeout_s
        logger.info("%s: no new connections, finishing within %g s", first.name, timeout_s)
        self._http.should_exit = True
        second = await self._signals.get()
        logger.warning("%s again: not waiting for running requests", second.name)
        self._http.force_exit = True


def _http_server(plan: LaunchPlan, pool: Pool) -> uvicorn.Server:
    import uvicorn

    from .front.app import create_app
    from .front.clients import TimedHttpProtocol

    class Server(uvicorn.Server):
        @contextlib.contextmanager
        def capture_signals(self) -> Generator[None]:
            yield  # `_Serving` has them

    config = uvicorn.Config(
        create_app(plan, pool),
        log_config=None,
        # What a request runs into is logged by the front itself, once.
        log_level="critical",
        access_log=False,
        lifespan="off",
        ws="none",
        timeout_keep_alive=75,
        timeout_graceful_shutdown=math.ceil(plan.settings.server.drain_timeout_s),
        server_header=False,
        http=TimedHttpProtocol,
    )
    return Server(config)
