"""The launcher's own HTTP beside an engine: is it alive, is the engine ready, what was planned."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.responses import JSONResponse

from kimi_serve.schemas.settings import ServerSettings

from ..front.http_server import http_server
from ..front.middleware import BearerKey, BoundedHead, SafeHeaders
from ..listening import url_of
from ..version import VERSION
from .state import EngineState

logger = logging.getLogger(__name__)

KEEP_ALIVE_S = 5


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


@contextlib.asynccontextmanager
async def status_server(listener: socket.socket, app: FastAPI) -> AsyncGenerator[None]:
    """Serve `app` until the end of the block; a fault of the server is told and ends no engine."""
    server = http_server(app, keep_alive_s=KEEP_ALIVE_S, graceful_s=1)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    serving.add_done_callback(_tell_fault)
    host, port = listener.getsockname()[:2]
    logger.info("status on %s", url_of(host, port))
    try:
        yield
    finally:
        server.should_exit = True
        await asyncio.gather(serving, return_exceptions=True)


def _tell_fault(serving: asyncio.Task[None]) -> None:
    if not serving.cancelled() and (error := serving.exception()) is not None:
        logger.error("nobody answers on engine.status_port any more", exc_info=error)
