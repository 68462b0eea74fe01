"""What crosses the socket between the pool and one worker, and how it is framed.

A frame is a fixed header, a JSON text and raw bytes. JSON, because a worker that decodes hostile
files must not be able to make its parent unpickle anything.
"""

from __future__ import annotations

import json
import struct
from dataclasses import asdict, dataclass
from typing import Any, Literal, cast

from .image_facts import ImageFacts

PixelEncoding = Literal["raw", "base64"]

_HEADER = struct.Struct("<II")
HEADER_BYTES = _HEADER.size

# A text beyond this is work of the kind that an image is, and goes where images go.
LONG_TEXT_BYTES = 1 << 18

# No frame of a worker is larger: what it announces is read into the memory of its parent. The ids
# are of 64 Mi tokens; the JSON holds no more than words and one number an image.
MAX_ANSWER_JSON_BYTES = 1 << 24
MAX_ANSWER_BYTES = 1 << 28
ID_BYTES = 4


@dataclass(frozen=True, slots=True)
class ImageJob:
    """Decode and preprocess the image in the frame's payload into `slot`.

    The payload is the file itself when `is_file`, else a reference that carries it. Under "base64"
    the slot holds the text of the pixels, which is what a JSON answer needs.
    """

    id: int
    slot: int
    encoding: PixelEncoding
    is_file: bool = False


@dataclass(frozen=True, slots=True)
class PromptJob:
    """Render and tokenise the chat (JSON) or the text in the frame's payload."""

    id: int
    num_images: int


@dataclass(frozen=True, slots=True)
class TextJob:
    """Tokenise the text in the frame's payload; special tokens in it are text."""

    id: int


@dataclass(frozen=True, slots=True)
class Tidy:
    """Give memory back: no job is under way and nobody reads the slots."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Finish and exit."""


@dataclass(frozen=True, slots=True)
class ImageResult:
    """`nbytes` of pixel_values, encoded as asked for, lie in the job's slot.

    `gpu_fallback` is a `GpuFallback`: why a CUDA worker redid the image on the CPU, if it did.
    """

    id: int
    image: ImageFacts
    nbytes: int
    gpu_fallback: str | None = None


@dataclass(frozen=True, slots=True)
class TokensResult:
    """Token ids are the frame's payload (int32, little-endian); one placeholder an image.

    `slots` are the positions of the placeholders that stand for images, in order.
    """

    id: int
    slots: tuple[int, ...]
    placeholder_id: int


@dataclass(frozen=True, slots=True)
class JobFailed:
    """A job was refused: `error` names a class of `schemas.errors`."""

    id: int
    error: str
    message: str
    hint: str | None
    param: str | None


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """What a worker found about itself after it was built; sent once, as "ready".

    `cuda_libraries` are the mapped CUDA driver and runtime libraries; `image_thread` is the
    kernel's number of the thread that images are processed in.
    """

    index: int
    pid: int
    decode_device: str
    preprocess_device: str
    cuda_visible_devices: str | None
    cuda_libraries: tuple[str, ...]
    torch_imported: bool
    threads: int
    image_thread: int
    versions: dict[str, str]
    build_ms: float


@dataclass(frozen=True, slots=True)
class WorkerFailed:
    """The worker could not be built; the traceback is for the log."""

    index: int
    error: str
    message: str
    hint: str | None
    traceback: str


Answer = ImageResult | TokensResult | JobFailed
Message = ImageJob | PromptJob | TextJob | Tidy | Stop | Answer | WorkerReport | WorkerFailed

_TYPES: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        ImageJob,
        PromptJob,
        TextJob,
        Tidy,
        Stop,
        ImageResult,
        TokensResult,
        JobFailed,
        WorkerReport,
        WorkerFailed,
    )
}


def is_long_text(text: bytes) -> bool:
    """Say whether a text goes where the images are processed."""
    return len(text) > LONG_TEXT_BYTES


def pack(message: Message, payload_bytes: int = 0) -> bytes:
    """Give header and JSON of a frame; the caller sends `payload_bytes` raw bytes after it."""
    text = json.dumps({"kind": type(message).__name__} | asdict(message)).encode()
    return _HEADER.pack(len(text), payload_bytes) + text


def unpack_header(header: bytes) -> tuple[int, int]:
    """Give (JSON length, payload length) of a frame header."""
    json_bytes, payload_bytes = _HEADER.unpack(header)
    return json_bytes, payload_bytes


def unpack(text: bytes) -> Message:
    """Read the JSON of a frame; lists become tuples."""
    fields: dict[str, Any] = json.loads(text)
    kind = _TYPES[fields.pop("kind")]
    if "image" in fields:
        fields["image"] = ImageFacts(**_tuples(fields["image"]))
    message: Message = kind(**_tuples(fields))
    return message


def _tuples(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        name: tuple(cast("list[object]", value)) if isinstance(value, list) else value
        for name, value in fields.items()
    }
