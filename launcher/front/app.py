"""The HTTP front: routes, and what stands before them. Decides nothing about devices."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from array import array
from collections.abc import AsyncGenerator
from dataclasses import asdict
from typing import Any, TypeVar

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException

from kimi_serve.preprocess.text.chat import parse_messages
from kimi_serve.preprocess.workers.pool import Pool
from kimi_serve.schemas.errors import (
    DeadlineError,
    InvalidBodyError,
    RequestError,
    UnavailableError,
)
from kimi_serve.schemas.messages import TokensResult
from kimi_serve.schemas.plan import LaunchPlan
from kimi_serve.schemas.settings import ServerSettings

from ..report.render import plan_json
from ..version import VERSION
from . import answers, api, openapi
from .admission import Hold
from .clients import SendDeadline, while_connected
from .image_cache import ImageCache
from .media import Media
from .metrics import Metrics
from .middleware import (
    SAFE_HEADERS,
    BearerKey,
    BoundedHead,
    Measured,
    SafeHeaders,
    SplitListeners,
)
from .state import FrontState
from .work import check_text, prompt_payload, read_work, run_work

Body = TypeVar("Body", bound=BaseModel)

# No other is named in an answer: what a header says is not repeated.
_KNOWN_ENCODINGS = ("br", "compress", "deflate", "gzip", "zstd")

logger = logging.getLogger(__name__)


def create_app(
    plan: LaunchPlan,
    pool: Pool,
    admin_port: int | None = None,
    state: FrontState | None = None,
) -> FastAPI:
    """Build the application around a pool that may still be starting.

    `admin_port` is where alone the admin routes are, None where they are among the others.
    `state` is what is kept through reloads.
    """
    app = FastAPI(
        title="kimi-serve",
        version=VERSION,
        docs_url=None,
        redoc_url=None,
        # A redirect would repeat the request's own Host and path.
        redirect_slashes=False,
    )
    front = _Front(plan, pool, state or FrontState(plan, pool))
    app.add_exception_handler(RequestError, _on_request_error)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(Exception, _on_unexpected)
    _add_middleware(app, plan.settings.server, front.metrics, admin_port)
    app.post("/v1/preprocess", **openapi.PREPROCESS)(front.preprocess)
    app.post("/tokenize", **openapi.TOKENIZE)(front.tokenize)
    app.get("/health", **openapi.HEALTH)(front.health)
    app.get("/ready", **openapi.READY)(front.ready)
    app.get("/v1/models", **openapi.MODELS)(front.models)
    is_shown = admin_port is None
    app.get("/metrics", include_in_schema=is_shown, **openapi.METRICS)(front.show_metrics)
    app.get("/server_info", include_in_schema=is_shown, **openapi.SERVER_INFO)(front.server_info)
    return app


def _add_middleware(
    app: FastAPI, server: ServerSettings, metrics: Metrics, admin_port: int | None
) -> None:
    """Put before the routes what every request passes; what is added last comes first."""
    if admin_port is not None:
        app.add_middleware(SplitListeners, admin_port=admin_port)
    keys = [key for key in (server.api_key, server.previous_api_key) if key is not None]
    if keys:
        app.add_middleware(BearerKey, keys=[key.get_secret_value().encode() for key in keys])
    app.add_middleware(BoundedHead)
    app.add_middleware(Measured, metrics=metrics)
    app.add_middleware(SendDeadline, timeout_s=server.request_timeout_s)
    app.add_middleware(SafeHeaders)


class _Front:
    """The routes and the state they share."""

    def __init__(self, plan: LaunchPlan, pool: Pool, state: FrontState) -> None:
        self._plan = plan
        self._settings = plan.settings
        self._pool = pool
        self._model = plan.settings.model.served_name or plan.checkpoint.name
        self._cache = _cache_of(plan)
        state.follow(plan, pool, self._cache)
        self._state = state
        self._admission = state.admission
        self.metrics = state.metrics
        self._media = Media(plan.settings, self._admission, self.metrics.count_media)

    async def preprocess(self, request: Request) -> Response:
        """Decode and preprocess the images of a chat, or images alone, and tokenise the chat."""
        is_safetensors = answers.accepts_safetensors(request.headers.get("accept", ""))
        make = answers.safetensors_body if is_safetensors else answers.json_body
        media_type = answers.SAFETENSORS if is_safetensors else "application/json"
        resize = self._plan.checkpoint.resize
        assert resize is not None
        with Hold(self._admission) as hold:
            async with self._served(request, api.PreprocessRequest) as asked:
                work = read_work(asked, self._settings)
                self._media.check(work.references)
                doing = run_work(
                    work,
                    self._pool,
                    hold,
                    encoding="raw" if is_safetensors else "base64",
                    max_response_bytes=min(
                        self._settings.server.max_response_bytes,
                        self._settings.server.max_queued_bytes,
                    ),
                    cache=self._cache,
                    media=self._media,
                )
                done = await while_connected(request, doing)
            for image, was_kept in zip(done.images, done.were_kept, strict=True):
                self.metrics.count_image(image, was_kept=was_kept)
            answer_id = f"prep-{uuid.uuid4().hex}"
            chunks = make(answer_id, self._model, self._settings.image.dtype, resize, done)
            return hold.response(chunks, media_type)

    async def tokenize(self, request: Request) -> JSONResponse:
        """Tokenise one text, or a chat without images."""
        async with self._served(request, api.TokenizeRequest) as asked:
            _, ids = await while_connected(request, self._tokens(asked))
        tokens = array("i")
        tokens.frombytes(ids)
        return JSONResponse({"tokens": tokens.tolist(), "count": len(tokens)})

    async def _tokens(self, asked: api.TokenizeRequest) -> tuple[TokensResult, bytes]:
        if (asked.prompt is None) == (asked.messages is None):
            raise RequestError("send either `prompt` or `messages`", param="prompt")
        if asked.prompt is not None:
            text = asked.prompt.encode()
            check_text(text, self._settings)
            return await self._pool.text(text)
        chat = parse_messages(asked.messages)
        if chat.images:
            message = "a chat with images is tokenised by /v1/preprocess, which knows their sizes"
            raise RequestError(message, param="messages")
        prompt = prompt_payload(chat, asked)
        check_text(prompt, self._settings)
        return await self._pool.prompt(prompt, 0)

    async def health(self) -> dict[str, str]:
        """Say that the front answers."""
        return {"status": "ok"}

    async def ready(self) -> JSONResponse:
        """Say whether work is taken: 503 until all workers were ready, and when none is left."""
        usable = self._pool.num_usable
        is_ready = self._pool.has_started and usable > 0 and not self._state.is_draining
        body = {
            "ready": is_ready,
            "workers_ready": usable,
            "workers": len(self._plan.worker_specs()),
        }
        return JSONResponse(body, 200 if is_ready else 503)

    async def show_metrics(self) -> Response:
        """Show counters in Prometheus's text format."""
        return Response(self.metrics.text(), media_type="text/plain; version=0.0.4")

    async def models(self) -> dict[str, Any]:
        """List the one model."""
        entry = {"id": self._model, "object": "model", "created": self._state.started}
        return {"object": "list", "data": [entry | {"owned_by": "kimi-serve"}]}

    async def server_info(self) -> dict[str, Any]:
        """Show the plan, redacted, and what every worker reported of itself."""
        workers = [
            (asdict(snapshot.report) if snapshot.report else {})
            | {"index": snapshot.index, "pid": snapshot.pid, "state": snapshot.state}
            for snapshot in self._pool.snapshots()
        ]
        return {
            "version": VERSION,
            "generation": self._state.generation,
            "workers": workers,
            "plan": plan_json(self._plan),
        }

    @contextlib.asynccontextmanager
    async def _served(self, request: Request, kind: type[Body]) -> AsyncGenerator[Body]:
        """Admit the body, parse it and hold the request to its deadline."""
        if not self._pool.has_started:
            raise UnavailableError("the workers are still starting")
        if "upgrade" in request.headers:
            # The parser takes what follows such a head for another protocol: the body is lost.
            message = (
                "this server does not upgrade a connection: send HTTP/1.1 without an Upgrade "
                "header (in Java, HttpClient.Version.HTTP_1_1)"
            )
            raise RequestError(message, param="Upgrade")
        encoding = request.headers.get("content-encoding", "").strip().lower()
        if encoding not in ("", "identity"):
            name = encoding if encoding in _KNOWN_ENCODINGS else "of this kind"
            message = f"Content-Encoding {name} is not supported; send the body as it is"
            raise RequestError(message, param="Content-Encoding")
        timeout_s = self._settings.server.request_timeout_s
        try:
            async with asyncio.timeout(timeout_s), self._admission.body(request) as body:
                asked = _parse(kind, body)
                # What was made of it is as large; both would wait for the workers.
                del body
                yield asked
        except TimeoutError:
            message = f"not answered within {timeout_s:g} s (server.request_timeout_s)"
            raise DeadlineError(message) from None


def _cache_of(plan: LaunchPlan) -> ImageCache | None:
    size = plan.settings.image.cache_bytes
    if size == 0 or not plan.worker_specs():
        return None
    spec = plan.worker_specs()[0]
    return ImageCache(size, spec.rules, spec.resize)


def _parse(kind: type[Body], body: bytes) -> Body:
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        if first["type"] == "json_invalid":
            reason = first.get("ctx", {}).get("error")
            raise RequestError(f"the body is not JSON: {reason}", param="body") from None
        place = ".".join(str(part) for part in first["loc"]) or "body"
        raise InvalidBodyError(f"{place}: {first['msg']}", param=place) from None


async def _on_request_error(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestError)
    return answers.error_answer(error)


async def _on_http_error(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return answers.plain_error(
        error.status_code, str(error.detail), code="http_error", headers=dict(error.headers or {})
    )


async def _on_unexpected(_request: Request, error: Exception) -> JSONResponse:
    logger.error("unexpected error in a request", exc_info=error)
    # Starlette answers this outside of all middleware.
    message = "internal error; the server's log has it"
    return answers.plain_error(500, message, code="internal", headers=SAFE_HEADERS)
