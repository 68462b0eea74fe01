"""uvicorn as both servers of the launcher use it: silent, without signal handlers of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from typing import Any

import uvicorn

from .clients import TimedHttpProtocol


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield  # whoever serves has them


def http_server(app: Callable[..., Any], *, keep_alive_s: int, graceful_s: int) -> uvicorn.Server:
    """Make a server for the sockets that it will be given; nothing runs yet."""
    config = uvicorn.Config(
        app,
        log_config=None,
        # What a request runs into is logged by the front itself, once.
        log_level="critical",
        access_log=False,
        lifespan="off",
        ws="none",
        timeout_keep_alive=keep_alive_s,
        timeout_graceful_shutdown=graceful_s,
        server_header=False,
        http=TimedHttpProtocol,
    )
    return _Server(config)
