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
from .image_cache import PlanImages
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
    app.state.front = front = _Front(plan, pool, state or FrontState(plan, pool))
    app.add_exception_handler(RequestError, _on_request_error)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(Exception, _on_unexpected)
    _add_middleware(app, plan.settings.server, front.metrics, admin_port)
    app.post("/v1/preprocess", **openapi.PREPROCESS)(preprocess)
    app.post("/tokenize", **openapi.TOKENIZE)(tokenize)
    app.get("/health", **openapi.HEALTH)(health)
    app.get("/ready", **openapi.READY)(ready)
    app.get("/v1/models", **openapi.MODELS)(models)
    is_shown = admin_port is None
    app.get("/metrics", include_in_schema=is_shown, **openapi.METRICS)(show_metrics)
    app.get("/server_info", include_in_schema=is_shown, **openapi.SERVER_INFO)(server_info)
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


# The routes. They are no methods of the front: FastAPI remembers every function that it was ever
# given, and with a method its front, that is the plan and the workers before each reload.


async def preprocess(request: Request) -> Response:
    """Decode and preprocess the images of a chat, or images alone, and tokenise the chat."""
    return await _front(request).preprocess(request)


async def tokenize(request: Request) -> JSONResponse:
    """Tokenise one text, or a chat without images."""
    return await _front(request).tokenize(request)


async def health() -> dict[str, str]:
    """Say that the front answers."""
    return {"status": "ok"}


async def ready(request: Request) -> JSONResponse:
    """Say whether work is taken: 503 until all workers were ready, and when none is left."""
    return _front(request).ready()


async def show_metrics(request: Request) -> Response:
    """Show counters in Prometheus's text format."""
    return Response(_front(request).metrics.text(), media_type="text/plain; version=0.0.4")


async def models(request: Request) -> dict[str, Any]:
    """List the one model."""
    return _front(request).models()


async def server_info(request: Request) -> dict[str, Any]:
    """Show the plan, redacted, and what every worker reported of itself."""
    return _front(request).server_info()


def _front(request: Request) -> _Front:
    front = request.app.state.front
    assert isinstance(front, _Front)
    return front


class _Front:
    """What the routes of one plan share, and their work."""

    def __init__(self, plan: LaunchPlan, pool: Pool, state: FrontState) -> None:
        self._plan = plan
        self._settings = plan.settings
        self._pool = pool
        self._model = plan.settings.model.served_name or plan.checkpoint.name
        self._kept = _kept_images(plan, state)
        self._state = state
        self._admission = state.admission
        self.metrics = state.metrics
        self._media = Media(plan.settings, self._admission, self.metrics.count_media)

    async def preprocess(self, request: Request) -> Response:
        is_safetensors = answers.accepts_safetensors(",".join(request.headers.getlist("accept")))
        make = answers.safetensors_body if is_safetensors else answers.json_body
        media_type = answers.SAFETENSORS if is_safetensors else "application/json"
        resize = self._plan.checkpoint.resize
        assert resize is not None
        with Hold(self._admission) as hold:
            async with self._served(request, api.PreprocessRequest) as asked:
                work = read_work(asked, self._settings, self._media)
                # Its images are bytes now: as texts they would wait along.
                del asked
                doing = run_work(
                    work,
                    self._pool,
                    hold,
                    encoding="raw" if is_safetensors else "base64",
                    max_response_bytes=min(
                        self._settings.server.max_response_bytes,
                        self._settings.server.max_queued_bytes,
                    ),
                    kept=self._kept,
                    media=self._media,
                )
                done = await while_connected(request, doing)
            for image, was_kept in zip(done.images, done.were_kept, strict=True):
                self.metrics.count_image(image, was_kept=was_kept)
            answer_id = f"prep-{uuid.uuid4().hex}"
            chunks = make(answer_id, self._model, self._settings.image.dtype, resize, done)
            return hold.response(chunks, media_type)

    async def tokenize(self, request: Request) -> JSONResponse:
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

    def ready(self) -> JSONResponse:
        usable = self._pool.num_usable
        is_ready = self._pool.has_started and usable > 0 and not self._state.is_draining
        body = {
            "ready": is_ready,
            "workers_ready": usable,
            "workers": len(self._plan.worker_specs()),
        }
        return JSONResponse(body, 200 if is_ready else 503)

    def models(self) -> dict[str, Any]:
        entry = {"id": self._model, "object": "model", "created": self._state.started}
        return {"object": "list", "data": [entry | {"owned_by": "kimi-serve"}]}

    def server_info(self) -> dict[str, Any]:
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
                asked = [_parse(kind, body)]
                # What was made of it is as large, and is not kept here either.
                del body
                yield asked.pop()
        except TimeoutError:
            message = f"not answered within {timeout_s:g} s (server.request_timeout_s)"
            raise DeadlineError(message) from None


def _kept_images(plan: LaunchPlan, state: FrontState) -> PlanImages | None:
    if plan.settings.image.cache_bytes == 0 or not plan.worker_specs():
        return None
    return PlanImages(state.cache, plan.worker_specs()[0])


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
