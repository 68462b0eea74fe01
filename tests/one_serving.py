"""Run as a program: one server, in this process, with a fault that no user can bring about.

    python one_serving.py MODE

Every mode is a function below. The server's log is on stderr, what a mode found is JSON on stdout.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import httpx
import uvicorn
import uvloop
from starlette.types import ASGIApp

from kimi_serve.launcher import serving
from kimi_serve.launcher.front.app import create_app
from kimi_serve.launcher.listening import take_port
from kimi_serve.launcher.pipeline import load, make_plan
from kimi_serve.launcher.pools import make_pool
from kimi_serve.preprocess import logs
from kimi_serve.preprocess.workers.pool import Pool
from kimi_serve.schemas.plan import LaunchPlan

IMAGE = Path(__file__).parent / "data" / "golden" / "phone_1440x3120.png"
KEPT = ("Generation", "_Front", "Pool", "ImageCache")


class Act(Protocol):
    """What is done to the server that answers at the address of the client."""

    async def __call__(self, server: serving.Serving, client: httpx.AsyncClient, /) -> None: ...


def plan_of(**given: object) -> LaunchPlan:
    """Make the plan of one worker; settings are given as section__name."""
    given = {"image__force_cpu_preprocessing": True, "server__drain_timeout_s": 2} | given
    env = dict(os.environ)
    env |= {f"KIMI_SERVE_{name.upper()}": str(value) for name, value in given.items()}
    return make_plan(load((), {}, (), env), env)


async def serve(act: Act, reread: Callable[[], LaunchPlan] = plan_of, **given: object) -> None:
    """Serve until the end, which `act` brings about once all is ready."""
    plan = plan_of(**given)
    with take_port("127.0.0.1", 0) as listener:
        pool = make_pool(plan.workers, plan.settings, dict(os.environ))
        pool.launch()
        server = serving.Serving(plan, pool, listener, None, dict(os.environ), reread)
        # Nobody but the server shall keep them.
        del pool, plan
        running = asyncio.create_task(server.run())
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        async with httpx.AsyncClient(base_url=url, timeout=60) as client:
            acting = asyncio.create_task(_when_ready(act, server, client))
            await asyncio.wait([running, acting], return_when=asyncio.FIRST_COMPLETED)
            if acting.done():
                acting.result()
        await running


async def _when_ready(act: Act, server: serving.Serving, client: httpx.AsyncClient) -> None:
    async def is_ready() -> bool:
        return (await client.get("/ready")).status_code == 200

    await until(is_ready)
    await act(server, client)


async def until(condition: Callable[[], Awaitable[bool]], within_s: float = 30) -> None:
    deadline = time.monotonic() + within_s
    while not await condition():
        if time.monotonic() > deadline:
            message = "it did not come true in time"
            raise TimeoutError(message)
        await asyncio.sleep(0.02)


async def generation(client: httpx.AsyncClient) -> int:
    return int((await client.get("/server_info")).json()["generation"])


def tell(**found: object) -> None:
    json.dump(found, sys.stdout)


def kept() -> dict[str, int]:
    """Count what there should be one of."""
    gc.collect()
    found = Counter(type(each).__name__ for each in gc.get_objects())
    return {name: found[name] for name in KEPT}


def fork_servers() -> Sequence[str]:
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text("ascii").split()


async def hangs() -> None:
    """The settings are where no answer comes from any more, and the server is stopped."""
    reads = asyncio.Event()
    loop = asyncio.get_running_loop()

    def reread() -> LaunchPlan:
        loop.call_soon_threadsafe(reads.set)
        time.sleep(600)
        raise AssertionError

    async def act(_server: serving.Serving, _client: httpx.AsyncClient) -> None:
        os.kill(os.getpid(), signal.SIGHUP)
        await reads.wait()
        os.kill(os.getpid(), signal.SIGTERM)

    await serve(act, reread)


async def keeps() -> None:
    """Reload again and again, with an image before each; what is left of all the plans?"""
    given = {"image__cache_bytes": 10**8}

    async def act(_server: serving.Serving, client: httpx.AsyncClient) -> None:
        for number in range(2, 6):
            body = {"images": [IMAGE.as_uri()]}
            assert (await client.post("/v1/preprocess", json=body)).status_code == 200
            os.kill(os.getpid(), signal.SIGHUP)

            async def is_next(number: int = number) -> bool:
                return await generation(client) == number

            await until(is_next)

        async def are_alone() -> bool:
            # A clock of the workers before may still run for a second.
            return len(fork_servers()) == 1 and set(kept().values()) == {1}

        with contextlib.suppress(TimeoutError):
            await until(are_alone, 10)
        metrics = (await client.get("/metrics")).text
        tell(kept=kept(), metrics=metrics)
        os.kill(os.getpid(), signal.SIGTERM)

    media = {"media__allowed_local_dirs": IMAGE.parent}
    await serve(act, lambda: plan_of(**given, **media), **given, **media)


async def fails_late() -> None:
    """A reload fails when its workers are ready and its application was made."""
    pools: list[Pool] = []

    def make(plan: LaunchPlan, pool: Pool, *rest: Any) -> ASGIApp:
        made = create_app(plan, pool, *rest)
        pools.append(pool)
        if len(pools) == 2:
            raise OSError(24, "Too many open files")
        return made

    serving.create_app = make  # type: ignore[assignment]

    async def act(_server: serving.Serving, client: httpx.AsyncClient) -> None:
        os.kill(os.getpid(), signal.SIGHUP)

        async def has_failed() -> bool:
            return len(pools) == 2 and len(fork_servers()) == 1

        await until(has_failed)
        answer = await client.post("/tokenize", json={"prompt": "x" * 3_000_000})
        metrics = (await client.get("/metrics")).text
        tell(generation=await generation(client), status=answer.status_code, metrics=metrics)
        os.kill(os.getpid(), signal.SIGTERM)

    await serve(act, lambda: plan_of(server__max_body_bytes=2_000_000, tokenizer__worker_num=2))


async def cannot_obey() -> None:
    """What is done at a signal fails."""

    def fail(_listeners: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    serving.take_no_more = fail

    async def act(_server: serving.Serving, _client: httpx.AsyncClient) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    await serve(act)


async def cannot_serve() -> None:
    """The HTTP server ends by an exception."""

    async def fail(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    uvicorn.Server.startup = fail  # type: ignore[method-assign]

    async def act(_server: serving.Serving, _client: httpx.AsyncClient) -> None:
        raise AssertionError

    await serve(act)


async def reloads_at_the_end() -> None:
    """A reload is done when the time for running requests is running."""

    async def act(server: serving.Serving, _client: httpx.AsyncClient) -> None:
        http = server._http  # pyright: ignore[reportPrivateUsage]
        switch = server._switch  # pyright: ignore[reportPrivateUsage]
        http.config.timeout_graceful_shutdown = 1
        switch.state.is_draining = True
        server._watch(switch.current)  # pyright: ignore[reportPrivateUsage]
        tell(left_s=http.config.timeout_graceful_shutdown)
        os.kill(os.getpid(), signal.SIGTERM)

    await serve(act)


MODES = {
    mode.__name__: mode
    for mode in (hangs, keeps, fails_late, cannot_obey, cannot_serve, reloads_at_the_end)
}

if __name__ == "__main__":
    logs.configure("info", "text", process="kimi-serve")
    uvloop.run(MODES[sys.argv[1]]())
