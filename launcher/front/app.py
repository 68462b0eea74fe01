"""The HTTP front: routes, and what stands before them. Decides nothing about devices."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import uuid
from array import array
from collections.abc import AsyncGenerator
from dataclasses import asdict
from typing import Any, TypeVar

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
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

from ..report.render import plan_json
from ..version import VERSION
from . import answers, api
from .admission import Admission, Hold
from .clients import SendDeadline, while_connected
from .metrics import Metrics
from .middleware import BearerKey, Measured
from .work import prompt_payload, read_work, run_work

Body = TypeVar("Body", bound=BaseModel)

logger = logging.getLogger(__name__)

_SCHEMA = "#/components/schemas/"


def create_app(plan: LaunchPlan, pool: Pool) -> FastAPI:
    """Build the application around a pool that may still be starting."""
    settings = plan.settings
    app = FastAPI(title="kimi-serve", version=VERSION, docs_url=None, redoc_url=None)
    front = _Front(plan, pool)
    app.add_exception_handler(RequestError, _on_request_error)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(Exception, _on_unexpected)
    key = settings.server.api_key
    if key is not None:
        app.add_middleware(BearerKey, key=key.get_secret_value().encode())
    app.add_middleware(Measured, metrics=front.metrics)
    app.add_middleware(SendDeadline, timeout_s=settings.server.request_timeout_s)
    errors: dict[int | str, dict[str, Any]] = {
        status: {"model": api.ErrorResponse} for status in (400, 401, 413, 415, 422, 429, 503, 504)
    }
    app.post(
        "/v1/preprocess",
        response_model=api.PreprocessResponse,
        responses={
            200: {"content": {answers.SAFETENSORS: {"schema": {"type": "string"}}}},
            **errors,
        },
        openapi_extra=_body_schema(api.PreprocessRequest),
    )(front.preprocess)
    app.post(
        "/tokenize",
        response_model=api.TokenizeResponse,
        responses=errors,
        openapi_extra=_body_schema(api.TokenizeRequest),
    )(front.tokenize)
    app.get("/health")(front.health)
    app.get("/ready", responses={503: {}})(front.ready)
    app.get("/metrics", response_class=PlainTextResponse)(front.show_metrics)
    app.get("/v1/models")(front.models)
    app.get("/server_info")(front.server_info)
    return app


class _Front:
    """The routes and the state they share."""

    def __init__(self, plan: LaunchPlan, pool: Pool) -> None:
        self._plan = plan
        self._settings = plan.settings
        self._pool = pool
        self._model = plan.settings.model.served_name or plan.checkpoint.name
        server = plan.settings.server
        self._admission = Admission(server.max_body_bytes, server.max_queued_bytes)
        self._started = int(time.time())
        self.metrics = Metrics(pool, self._admission)

    async def preprocess(self, request: Request) -> Response:
        """Decode and preprocess the images of a chat, or images alone, and tokenise the chat."""
        is_safetensors = answers.accepts_safetensors(request.headers.get("accept", ""))
        make = answers.safetensors_body if is_safetensors else answers.json_body
        media_type = answers.SAFETENSORS if is_safetensors else "application/json"
        resize = self._plan.checkpoint.resize
        assert resize is not None
        with Hold(self._admission) as hold:
            async with self._served(request) as body:
                work = read_work(_parse(api.PreprocessRequest, body), self._settings)
                doing = run_work(
                    work,
                    self._pool,
                    hold,
                    encoding="raw" if is_safetensors else "base64",
                    max_response_bytes=min(
                        self._settings.server.max_response_bytes,
                        self._settings.server.max_queued_bytes,
                    ),
                )
                done = await while_connected(request, doing)
            for image in done.images:
                self.metrics.count_image(image)
            answer_id = f"prep-{uuid.uuid4().hex}"
            chunks = make(answer_id, self._model, self._settings.image.dtype, resize, done)
            return hold.response(chunks, media_type)

    async def tokenize(self, request: Request) -> JSONResponse:
        """Tokenise one text, or a chat without images."""
        async with self._served(request) as body:
            asked = _parse(api.TokenizeRequest, body)
            _, ids = await while_connected(request, self._tokens(asked))
        tokens = array("i")
        tokens.frombytes(ids)
        return JSONResponse({"tokens": tokens.tolist(), "count": len(tokens)})

    async def _tokens(self, asked: api.TokenizeRequest) -> tuple[TokensResult, bytes]:
        if (asked.prompt is None) == (asked.messages is None):
            raise RequestError("send either `prompt` or `messages`", param="prompt")
        if asked.prompt is not None:
            return await self._pool.text(asked.prompt.encode())
        chat = parse_messages(asked.messages)
        if chat.images:
            message = "a chat with images is tokenised by /v1/preprocess, which knows their sizes"
            raise RequestError(message, param="messages")
        return await self._pool.prompt(prompt_payload(chat, asked), 0)

    async def health(self) -> dict[str, str]:
        """Say that the front answers."""
        return {"status": "ok"}

    async def ready(self) -> JSONResponse:
        """Say whether work is taken: 503 until all workers were ready, and when none is left."""
        usable = self._pool.num_usable
        is_ready = self._pool.has_started and usable > 0
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
        entry = {"id": self._model, "object": "model", "created": self._started}
        return {"object": "list", "data": [entry | {"owned_by": "kimi-serve"}]}

    async def server_info(self) -> dict[str, Any]:
        """Show the plan, redacted, and what every worker reported of itself."""
        workers = [
            (asdict(snapshot.report) if snapshot.report else {})
            | {"index": snapshot.index, "pid": snapshot.pid, "state": snapshot.state}
            for snapshot in self._pool.snapshots()
        ]
        return {"version": VERSION, "workers": workers, "plan": plan_json(self._plan)}

    @contextlib.asynccontextmanager
    async def _served(self, request: Request) -> AsyncGenerator[bytes]:
        """Admit the body and hold the request to its deadline."""
        if not self._pool.has_started:
            raise UnavailableError("the workers are still starting")
        encoding = request.headers.get("content-encoding", "").strip().lower()
        if encoding not in ("", "identity"):
            message = f"Content-Encoding {encoding} is not supported; send the body as it is"
            raise RequestError(message, param="Content-Encoding")
        timeout_s = self._settings.server.request_timeout_s
        try:
            async with asyncio.timeout(timeout_s), self._admission.body(request) as body:
                yield body
        except TimeoutError:
            message = f"not answered within {timeout_s:g} s (server.request_timeout_s)"
            raise DeadlineError(message) from None


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


def _body_schema(kind: type[BaseModel]) -> dict[str, Any]:
    schema = kind.model_json_schema(ref_template=_SCHEMA + "{model}")
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


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
    return answers.plain_error(500, "internal error; the server's log has it", code="internal")
