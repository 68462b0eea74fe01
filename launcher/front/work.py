"""One preprocess request through the pool: all images and the prompt at once, then joined."""

from __future__ import annotations

import asyncio
import json
from array import array
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from kimi_serve.preprocess.text.chat import Chat, parse_messages
from kimi_serve.preprocess.text.prompt import TokenizedPrompt, expand
from kimi_serve.preprocess.workers.pool import Pool
from kimi_serve.schemas.errors import BodyTooLargeError, RequestError
from kimi_serve.schemas.image_facts import ImageFacts
from kimi_serve.schemas.messages import PixelEncoding, TokensResult
from kimi_serve.schemas.settings import Settings

from .admission import Hold
from .api import PreprocessRequest, TokenizeRequest
from .image_cache import CachedImage, ImageCache
from .media import Media, RequestImages

_COPIED_BYTES = 1 << 22


@dataclass(frozen=True, slots=True)
class Preprocessed:
    """`pixels` are the encoded pixel_values, one piece an image; `input_ids` are expanded.

    `were_kept` says of each image whether the cache had it.
    """

    input_ids: array[int] | None
    images: tuple[ImageFacts, ...]
    pixels: tuple[bytearray, ...]
    were_kept: tuple[bool, ...]


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


async def run_work(
    work: Work,
    pool: Pool,
    hold: Hold,
    *,
    encoding: PixelEncoding,
    max_response_bytes: int,
    media: Media,
    cache: ImageCache | None = None,
) -> Preprocessed:
    """Process all images and the prompt at the same time; the first fault ends the rest.

    The pixels, which `hold` counts, are copied out at once: a slot is free again before anything
    is sent, however slowly the client reads.
    """

    def admit(nbytes: int) -> None:
        _check_answer(hold.size + nbytes, max_response_bytes)
        hold.take(nbytes)

    async def processed(content: bytes, is_file: bool) -> tuple[CachedImage, bool]:
        key = b"" if cache is None else await cache.key(content, encoding, is_file=is_file)
        kept = None if cache is None else cache.get(key)
        if kept is not None:
            admit(len(kept.pixels))
            return kept, True
        async with pool.image(content, encoding, is_file=is_file, request=hold) as lease:
            admit(lease.result.nbytes)
            image = CachedImage(lease.result.image, await _copy(lease.pixels))
        if cache is not None:
            cache.put(key, image)
        return image, False

    async def one_image(
        files: RequestImages, index: int, reference: str
    ) -> tuple[CachedImage, bool]:
        try:
            async with files.content(reference) as (content, is_file):
                return await processed(content, is_file)
        except RequestError as error:
            # Images of one file share its error, which names the first of them.
            error.param = error.param or f"images[{index}]"
            raise

    async with media.of_request(work.references) as files:
        images = [one_image(files, index, each) for index, each in enumerate(work.references)]
        prompt = [] if work.chat is None else [pool.prompt(work.prompt, len(work.references))]
        done = await _all(images + prompt)
    pairs: list[tuple[CachedImage, bool]] = done[: len(images)]
    results = tuple(image.facts for image, _ in pairs)
    input_ids = None
    if work.chat is not None:
        tokens, ids = done[-1]
        input_ids = _expanded(tokens, ids, results)
    return Preprocessed(
        input_ids,
        results,
        tuple(image.pixels for image, _ in pairs),
        tuple(was_kept for _, was_kept in pairs),
    )


def _expanded(tokens: TokensResult, ids: bytes, images: Sequence[ImageFacts]) -> array[int]:
    unexpanded = array("i")
    unexpanded.frombytes(ids)
    # `expand` finds the placeholder by a slot: where there is none, this looks.
    if unexpanded.count(tokens.placeholder_id) != len(images):
        message = f"{unexpanded.count(tokens.placeholder_id)} placeholders, {len(images)} images"
        raise ValueError(message)
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
