"""Answers as bytes: JSON, safetensors, and errors in OpenAI's envelope."""

from __future__ import annotations

import json
from array import array
from collections.abc import AsyncIterator, Sequence
from typing import Any

from fastapi.responses import JSONResponse, Response, StreamingResponse

from kimi_serve.preprocess.tensor_file import Tensor, safetensors_chunks
from kimi_serve.schemas.errors import RequestError
from kimi_serve.schemas.worker import ResizeConfig

from .work import Preprocessed

SAFETENSORS = "application/vnd.safetensors"
_PIECE_BYTES = 1 << 20


def json_answer(
    answer_id: str, model: str, dtype: str, resize: ResizeConfig, done: Preprocessed
) -> Response:
    """Give the JSON body; the pixels, already base64, are streamed in their place."""
    body = _description(answer_id, model, done) | {
        "input_ids": None if done.input_ids is None else done.input_ids.tolist(),
        "grid_thws": [list(image.grid_thw) for image in done.images],
    }
    pixel_values = {"dtype": dtype, "shape": _shape(done, resize)}
    # Both objects are left open for what follows.
    head = f'{json.dumps(body)[:-1]}, "pixel_values": {json.dumps(pixel_values)[:-1]}, "data": "'
    return _stream([head.encode(), *done.pixels, b'"}}'], "application/json")


def safetensors_answer(
    answer_id: str, model: str, dtype: str, resize: ResizeConfig, done: Preprocessed
) -> Response:
    """Give one safetensors body: the tensors, and the rest as metadata."""
    grids = array("q", [side for image in done.images for side in image.grid_thw])
    tensors = [
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
    return _stream(safetensors_chunks(tensors, metadata), SAFETENSORS)


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


def _stream(chunks: Sequence[bytes | memoryview], media_type: str) -> Response:
    async def pieces() -> AsyncIterator[bytes | memoryview]:
        for chunk in chunks:
            view = memoryview(chunk)
            for start in range(0, len(view), _PIECE_BYTES):
                yield view[start : start + _PIECE_BYTES]

    size = sum(len(chunk) for chunk in chunks)
    return StreamingResponse(pieces(), media_type=media_type, headers={"Content-Length": str(size)})
