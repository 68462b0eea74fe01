"""The yardstick of http_load.py: plain FastAPI around the checkpoint's order of steps."""

from __future__ import annotations

import base64
import sys

import uvicorn
from common import checkpoint_order
from fastapi import FastAPI, Response
from pydantic import BaseModel


class Request(BaseModel):
    images: list[str]


app = FastAPI()


@app.post("/v1/preprocess")
def preprocess(request: Request) -> Response:
    """Give the patches of all images; FastAPI runs this in its thread pool."""
    done = [
        checkpoint_order(base64.b64decode(url.partition(",")[2])).tobytes()
        for url in request.images
    ]
    return Response(b"".join(done), media_type="application/octet-stream")


@app.get("/health")
def health() -> dict[str, str]:
    return {"status": "ok"}


if __name__ == "__main__":
    port, workers = (int(word) for word in sys.argv[1:])
    uvicorn.run("plain_fastapi:app", port=port, workers=workers, log_level="error")
