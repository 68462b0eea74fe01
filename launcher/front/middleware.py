"""What every request passes before its route: bounds, the key, which listener, the measuring."""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Sequence

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kimi_serve.schemas.errors import UnauthorizedError

from .answers import error_answer, plain_error
from .metrics import Metrics

OPEN_PATHS = ("/health", "/ready")
ADMIN_PATHS = ("/metrics", "/server_info")

# What is asked here fits in a tenth of this; nothing of a head is kept beyond it.
MAX_HEADERS = 100
MAX_HEAD_BYTES = 32 * 2**10
MAX_TARGET_BYTES = 4 * 2**10

# Answers are data that belongs to who asked: no browser is to guess a type, no proxy to keep them.
SAFE_HEADERS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}


class BearerKey:
    """Lets requests with one of the keys through.

    Digests are compared in constant time, so neither the time nor the length tells of a key.
    """

    def __init__(self, app: ASGIApp, keys: Sequence[bytes]) -> None:
        self._app = app
        self._expected = [_digest(key) for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_guarded = scope["type"] == "http" and scope["path"] not in OPEN_PATHS
        if is_guarded and not self._is_known(scope):
            error = UnauthorizedError("send the key as 'Authorization: Bearer <key>'")
            await error_answer(error)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _is_known(self, scope: Scope) -> bool:
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        scheme, _, key = (given[0] if len(given) == 1 else b"").partition(b" ")
        digest = _digest(key.strip(b" "))
        # All are compared, whichever fits.
        fits = [hmac.compare_digest(digest, expected) for expected in self._expected]
        return any(fits) and scheme.lower() == b"bearer"


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


class BoundedHead:
    """Refuses requests whose head is larger than any that is meant, or whose body is coded."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers: list[tuple[bytes, bytes]] = scope["headers"]
            target = len(scope.get("raw_path") or b"") + len(scope["query_string"])
            size = sum(len(name) + len(value) for name, value in headers)
            if target > MAX_TARGET_BYTES:
                message = f"the path and query have more than {MAX_TARGET_BYTES} bytes"
                await plain_error(414, message, code="path_too_long")(scope, receive, send)
                return
            if len(headers) > MAX_HEADERS or size > MAX_HEAD_BYTES:
                message = f"more than {MAX_HEADERS} headers or {MAX_HEAD_BYTES} bytes of them"
                await plain_error(431, message, code="headers_too_large")(scope, receive, send)
                return
            if any(
                name == b"transfer-encoding" and not _is_chunked(value) for name, value in headers
            ):
                # The parser looks at the last coding only, and gives what is coded as it came.
                message = "no Transfer-Encoding but chunked is supported; send the body as it is"
                await plain_error(501, message, code="http_error")(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _is_chunked(value: bytes) -> bool:
    return value.strip(b" \t").lower() == b"chunked"


class SplitListeners:
    """Shows the admin routes on the admin listener alone, and there nothing else but the probes."""

    def __init__(self, app: ASGIApp, admin_port: int) -> None:
        self._app = app
        self._admin_port = admin_port

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in OPEN_PATHS:
            is_admin = (scope["server"] or ("", None))[1] == self._admin_port
            if is_admin != (scope["path"] in ADMIN_PATHS):
                await plain_error(404, "Not Found", code="http_error")(scope, receive, send)
                return
        await self._app(scope, receive, send)


class SafeHeaders:
    """Adds to every answer what keeps others from misreading or keeping it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(SAFE_HEADERS)
            await send(message)

        await self._app(scope, receive, send_safely)


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
