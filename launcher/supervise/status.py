"""The launcher's own HTTP beside an engine: is it alive, is the engine ready, what was planned."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncGenerator, Generator, Mapping
from typing import Any

import uvicorn
from fastapi import FastAPI
from fastapi.responses import JSONResponse

from kimi_serve.schemas.settings import ServerSettings

from ..front.clients import TimedHttpProtocol
from ..front.middleware import BearerKey, BoundedHead, SafeHeaders
from ..listening import url_of
from ..version import VERSION
from .state import EngineState

logger = logging.getLogger(__name__)


def create_app(state: EngineState, plan: Mapping[str, Any], server: ServerSettings) -> FastAPI:
    """Build the application; `plan` is shown as it is, so it must be redacted."""
    app = FastAPI(
        title="kimi-serve", version=VERSION, docs_url=None, redoc_url=None, redirect_slashes=False
    )
    keys = [key for key in (server.api_key, server.previous_api_key) if key is not None]
    if keys:
        app.add_middleware(BearerKey, keys=[key.get_secret_value().encode() for key in keys])
    app.add_middleware(BoundedHead)
    app.add_middleware(SafeHeaders)

    async def health() -> dict[str, str]:
        return {"status": "ok"}

    async def ready() -> JSONResponse:
        body = state.as_json()
        return JSONResponse(body, 200 if body["ready"] else 503)

    async def server_info() -> dict[str, Any]:
        return {"version": VERSION, "engine": state.as_json(), "plan": plan}

    app.get("/health")(health)
    app.get("/ready", responses={503: {}})(ready)
    app.get("/server_info")(server_info)
    return app


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield  # the supervision has them


@contextlib.asynccontextmanager
async def status_server(listener: socket.socket, app: FastAPI) -> AsyncGenerator[None]:
    """Serve `app` until the end of the block."""
    config = uvicorn.Config(
        app,
        log_config=None,
        log_level="critical",
        access_log=False,
        lifespan="off",
        ws="none",
        timeout_graceful_shutdown=1,
        server_header=False,
        http=TimedHttpProtocol,
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    host, port = listener.getsockname()[:2]
    logger.info("status on %s", url_of(host, port))
    try:
        yield
    finally:
        server.should_exit = True
        await asyncio.gather(serving, return_exceptions=True)
