"""Answers as bytes: JSON, safetensors, and errors in OpenAI's envelope."""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Iterable
from typing import Any

from fastapi.responses import JSONResponse

from kimi_serve.preprocess.tensor_file import Tensor, safetensors_chunks
from kimi_serve.schemas.errors import RequestError
from kimi_serve.schemas.worker import ResizeConfig

from .admission import Chunk
from .work import Preprocessed

SAFETENSORS = "application/vnd.safetensors"
_WEIGHT = re.compile(r"0(\.[0-9]*)?|1(\.0*)?")


def json_body(
    answer_id: str, model: str, dtype: str, resize: ResizeConfig, done: Preprocessed
) -> list[Chunk]:
    """Give the JSON body in chunks; the pixels, already base64, are chunks of their own."""
    body = _description(answer_id, model, done) | {
        "input_ids": None if done.input_ids is None else done.input_ids.tolist(),
        "grid_thws": [list(image.grid_thw) for image in done.images],
    }
    pixel_values = {"dtype": dtype, "shape": _shape(done, resize)}
    # Both objects are left open for what follows.
    head = f'{json.dumps(body)[:-1]}, "pixel_values": {json.dumps(pixel_values)[:-1]}, "data": "'
    return [head.encode(), *done.pixels, b'"}}']


def safetensors_body(
    answer_id: str, model: str, dtype: str, resize: ResizeConfig, done: Preprocessed
) -> list[Chunk]:
    """Give one safetensors body in chunks: the tensors, and the rest as metadata."""
    grids = array("q", [side for image in done.images for side in image.grid_thw])
    tensors: list[Tensor[Chunk]] = [
        Tensor("pixel_values", dtype, _shape(done, resize), done.pixels),
        Tensor("grid_thws", "int64", [len(done.images), 3], [grids.tobytes()]),
    ]
    if done.input_ids is not None:
        ids = array("q", done.input_ids)
        tensors.append(Tensor("input_ids", "int64", [len(ids)], [ids.tobytes()]))
    metadata = {
        key: value if isinstance(value, str) else json.dumps(value)
        for key, value in _description(answer_id, model, done).items()
    }
    return safetensors_chunks(tensors, metadata)


def accepts_safetensors(accept: str) -> bool:
    """Say whether an Accept header asks for safetensors, and not rather for JSON."""
    weights: dict[str, float] = {}
    for part in accept.lower().split(","):
        kind, *parameters = (word.strip() for word in part.split(";"))
        weights[kind] = _weight(parameters)
    wanted = weights.get(SAFETENSORS, 0.0)
    return wanted > 0 and wanted >= weights.get("application/json", 0.0)


def _weight(parameters: Iterable[str]) -> float:
    """Give the weight among the parameters of a media type (RFC 9110, 12.4.2)."""
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q" and _WEIGHT.fullmatch(value.strip()):
            return float(value)
    return 1.0


def error_answer(error: RequestError) -> JSONResponse:
    """Put an error into OpenAI's envelope."""
    message = error.message if error.hint is None else f"{error.message}; {error.hint}"
    headers = {"Retry-After": "1"} if error.status in (429, 503) else {}
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return plain_error(error.status, message, code=error.code, param=error.param, headers=headers)


def plain_error(
    status: int,
    message: str,
    *,
    code: str,
    param: str | None = None,
    headers: dict[str, str] | None = None,
) -> JSONResponse:
    """Give an error body; its type follows from the status."""
    kinds = {401: "authentication_error", 429: "rate_limit_error"}
    kind = kinds.get(status, "server_error" if status >= 500 else "invalid_request_error")
    body = {"error": {"message": message, "type": kind, "code": code, "param": param}}
    return JSONResponse(body, status, headers=headers)


def _description(answer_id: str, model: str, done: Preprocessed) -> dict[str, Any]:
    image_tokens = sum(image.num_tokens for image in done.images)
    return {
        "id": answer_id,
        "model": model,
        "images": [
            {
                "index": index,
                "width": image.width,
                "height": image.height,
                "format": image.format,
                "orientation_applied": image.orientation_applied,
                "resized": list(image.resized),
                "num_tokens": image.num_tokens,
                "sha256": image.sha256,
            }
            for index, image in enumerate(done.images)
        ],
        "usage": {
            "prompt_tokens": 0 if done.input_ids is None else len(done.input_ids),
            "image_tokens": image_tokens,
        },
    }


def _shape(done: Preprocessed, resize: ResizeConfig) -> list[int]:
    patches = sum(image.shape[0] for image in done.images)
    return [patches, 3, resize.patch_size, resize.patch_size]
