"""What every request passes before its route: the key, and the measuring."""

from __future__ import annotations

import hmac
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kimi_serve.schemas.errors import UnauthorizedError

from .answers import error_answer
from .metrics import Metrics

OPEN_PATHS = ("/health", "/ready")


class BearerKey:
    """Lets requests with the key through; compared in constant time."""

    def __init__(self, app: ASGIApp, key: bytes) -> None:
        self._app = app
        self._expected = b"bearer " + key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in OPEN_PATHS:
            given = dict(scope["headers"]).get(b"authorization", b"")
            scheme, _, key = given.partition(b" ")
            if not hmac.compare_digest(scheme.lower() + b" " + key, self._expected):
                error = UnauthorizedError("send the key as 'Authorization: Bearer <key>'")
                await error_answer(error)(scope, receive, send)
                return
        await self._app(scope, receive, send)


class Measured:
    """Counts requests by route and status, and their time."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.monotonic()
        status = 500

        async def note_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, note_status)
        finally:
            # The matched route, never the raw path: a scanner must not fill the registry.
            route = getattr(scope.get("route"), "path", "other")
            self._metrics.requests.labels(route, str(status)).inc()
            self._metrics.request_seconds.labels(route).observe(time.monotonic() - started)
