"""One preprocess request through the pool: all images and the prompt at once, then joined."""

from __future__ import annotations

import asyncio
import json
from array import array
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from kimi_serve.preprocess.images.reference import classify, refusal
from kimi_serve.preprocess.text.chat import Chat, parse_messages
from kimi_serve.preprocess.text.prompt import TokenizedPrompt, expand
from kimi_serve.preprocess.workers.pool import Pool
from kimi_serve.schemas.errors import BodyTooLargeError, RequestError
from kimi_serve.schemas.image_facts import ImageFacts
from kimi_serve.schemas.messages import PixelEncoding, TokensResult
from kimi_serve.schemas.settings import Settings

from .admission import Hold
from .api import PreprocessRequest, TokenizeRequest

_COPIED_BYTES = 1 << 22


@dataclass(frozen=True, slots=True)
class Preprocessed:
    """`pixels` are the encoded pixel_values, one piece an image; `input_ids` are expanded."""

    input_ids: array[int] | None
    images: tuple[ImageFacts, ...]
    pixels: tuple[bytearray, ...]


@dataclass(frozen=True, slots=True)
class Work:
    """What a request asks for: images in order, and the chat that they belong to, if any."""

    references: tuple[str, ...]
    chat: Chat | None
    prompt: bytes


def read_work(request: PreprocessRequest, settings: Settings) -> Work:
    """Check a request as far as the front can, without a look into any image.

    Raises RequestError; the index of the image at fault is in its `param`.
    """
    if (request.messages is None) == (request.images is None):
        raise RequestError("send either `messages` or `images`", param="messages")
    chat = None
    prompt = b""
    if request.messages is None:
        references = tuple(request.images or ())
        if not references:
            raise RequestError("`images` is empty", param="images")
    else:
        chat = parse_messages(request.messages)
        references = chat.images
        prompt = prompt_payload(chat, request)
    limit = settings.image.max_per_request
    if len(references) > limit:
        message = f"{len(references)} images; at most {limit} are allowed (image.max_per_request)"
        raise RequestError(message, param="images")
    for index, reference in enumerate(references):
        _refuse_elsewhere(index, reference)
    return Work(references, chat, prompt)


def prompt_payload(chat: Chat, request: PreprocessRequest | TokenizeRequest) -> bytes:
    """Give what a worker needs to render the chat."""
    return json.dumps(
        {
            "messages": chat.messages,
            "tools": request.tools,
            "template_kwargs": request.chat_template_kwargs,
            "add_generation_prompt": request.add_generation_prompt,
        }
    ).encode()


def _refuse_elsewhere(index: int, reference: str) -> None:
    kind = classify(reference)
    if kind != "inline":
        error = refusal(kind, reference)
        error.param = f"images[{index}]"
        raise error


async def run_work(
    work: Work,
    pool: Pool,
    hold: Hold,
    *,
    encoding: PixelEncoding,
    max_response_bytes: int,
) -> Preprocessed:
    """Process all images and the prompt at the same time; the first fault ends the rest.

    The pixels, which `hold` counts, are copied out at once: a slot is free again before anything
    is sent, however slowly the client reads.
    """

    async def one_image(index: int, reference: str) -> tuple[ImageFacts, bytearray]:
        try:
            async with pool.image(reference.encode(), encoding) as lease:
                _check_answer(hold.size + lease.result.nbytes, max_response_bytes)
                hold.take(lease.result.nbytes)
                return lease.result.image, await _copy(lease.pixels)
        except RequestError as error:
            error.param = f"images[{index}]"
            raise

    images = [one_image(index, reference) for index, reference in enumerate(work.references)]
    prompt = [] if work.chat is None else [pool.prompt(work.prompt, len(work.references))]
    done = await _all(images + prompt)
    pairs: list[tuple[ImageFacts, bytearray]] = done[: len(images)]
    results = tuple(result for result, _ in pairs)
    input_ids = None
    if work.chat is not None:
        tokens, ids = done[-1]
        input_ids = _expanded(tokens, ids, results)
    return Preprocessed(input_ids, results, tuple(data for _, data in pairs))


def _expanded(tokens: TokensResult, ids: bytes, images: Sequence[ImageFacts]) -> array[int]:
    unexpanded = array("i")
    unexpanded.frombytes(ids)
    prompt = TokenizedPrompt(unexpanded.tolist(), tokens.slots)
    return array("i", expand(prompt, [image.num_tokens for image in images]).ids)


async def _all(work: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]:
    """Run all; on a fault cancel the rest and raise that of the earliest piece."""
    tasks = [asyncio.ensure_future(piece) for piece in work]
    try:
        if tasks:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        unfinished = [task for task in tasks if not task.done()]
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)
    faults = [
        task.exception() for task in tasks if not task.cancelled() and task.exception() is not None
    ]
    if faults and faults[0] is not None:
        raise faults[0]
    return [task.result() for task in tasks]


def _check_answer(size: int, limit: int) -> None:
    if size > limit:
        raise BodyTooLargeError(
            f"pixel_values would have more than {limit} bytes (server.max_response_bytes, "
            "server.max_queued_bytes); send fewer images, or use image.dtype uint8"
        )


async def _copy(pixels: memoryview) -> bytearray:
    """Copy in pieces, with a turn for everybody else after each."""
    copied = bytearray(len(pixels))
    for start in range(0, len(pixels), _COPIED_BYTES):
        end = start + _COPIED_BYTES
        copied[start:end] = pixels[start:end]
        await asyncio.sleep(0)
    return copied
