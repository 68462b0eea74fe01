"""What the OpenAPI document says of each route: bodies, answers and every error it may give."""

from __future__ import annotations

from typing import Any

from fastapi.responses import PlainTextResponse
from pydantic import BaseModel

from . import answers, api

Route = dict[str, Any]

_SCHEMA = "#/components/schemas/"
_DESCRIPTIONS = {
    400: "The request, or an image that `param` names, cannot be used.",
    401: "The bearer key is missing or wrong.",
    413: "The body, the answer or an image is too large.",
    414: "Path and query are too long.",
    415: "An image of a format that is not accepted.",
    422: "JSON of the wrong shape.",
    429: "More is waiting than the server holds; see Retry-After.",
    431: "The headers are too many or too large.",
    500: "A fault of the server; its log has it.",
    502: "The host of an image failed.",
    503: "Starting, stopping or without workers; see Retry-After.",
    504: "Not answered within its time.",
}
# What stands before every route may answer with these.
_ALWAYS = (414, 431, 500)
_GUARDED = (401, *_ALWAYS)
_WORK = (400, 413, 415, 422, 429, 503, 504, *_GUARDED)


def _errors(statuses: tuple[int, ...]) -> dict[int | str, Any]:
    return {
        status: {"model": api.ErrorResponse, "description": _DESCRIPTIONS[status]}
        for status in sorted(statuses)
    }


def _body(kind: type[BaseModel]) -> dict[str, Any]:
    schema = kind.model_json_schema(ref_template=_SCHEMA + "{model}")
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


PREPROCESS: Route = {
    "response_model": api.PreprocessResponse,
    "responses": {
        200: {"content": {answers.SAFETENSORS: {"schema": {"type": "string", "format": "binary"}}}},
        **_errors((*_WORK, 502)),
    },
    "openapi_extra": _body(api.PreprocessRequest),
}
TOKENIZE: Route = {
    "response_model": api.TokenizeResponse,
    "responses": _errors(_WORK),
    "openapi_extra": _body(api.TokenizeRequest),
}
HEALTH: Route = {"response_model": api.HealthResponse, "responses": _errors(_ALWAYS)}
READY: Route = {
    "response_model": api.ReadyResponse,
    "responses": {
        **_errors(_ALWAYS),
        503: {"model": api.ReadyResponse, "description": "No work is taken now."},
    },
}
MODELS: Route = {"response_model": api.ModelsResponse, "responses": _errors(_GUARDED)}
METRICS: Route = {"response_class": PlainTextResponse, "responses": _errors(_GUARDED)}
SERVER_INFO: Route = {"response_model": api.ServerInfoResponse, "responses": _errors(_GUARDED)}
