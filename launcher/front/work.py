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
from kimi_serve.preprocess.workers.leases import ImageLease
from kimi_serve.preprocess.workers.pool import Pool
from kimi_serve.schemas.errors import BodyTooLargeError, RequestError
from kimi_serve.schemas.image_facts import ImageFacts
from kimi_serve.schemas.messages import PixelEncoding, TokensResult
from kimi_serve.schemas.settings import Settings

from .admission import Hold
from .api import PreprocessRequest, TokenizeRequest
from .image_cache import CachedImage, PlanImages
from .media import AskedImage, Media, RequestImages

_COPIED_BYTES = 1 << 20

Pixels = bytearray | ImageLease
# Its facts, its pixels, and whether the cache had them.
_Image = tuple[ImageFacts, Pixels, bool]


@dataclass(frozen=True, slots=True)
class Preprocessed:
    """`pixels` are the encoded pixel_values, one piece an image; `input_ids` are expanded.

    What is leased of them is released by the request's hold. `were_kept` says of each image
    whether the cache had it.
    """

    input_ids: array[int] | None
    images: tuple[ImageFacts, ...]
    pixels: tuple[Pixels, ...]
    were_kept: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Work:
    """What a request asks for: images in order, and the chat that they belong to, if any."""

    images: tuple[AskedImage, ...]
    prompt: bytes | None


def read_work(request: PreprocessRequest, settings: Settings, media: Media) -> Work:
    """Check a request as far as the front can, without a look into any image.

    Raises RequestError; the index of the image at fault is in its `param`.
    """
    if (request.messages is None) == (request.images is None):
        raise RequestError("send either `messages` or `images`", param="messages")
    prompt = None
    if request.messages is None:
        references = tuple(request.images or ())
        if not references:
            raise RequestError("`images` is empty", param="images")
    else:
        chat = parse_messages(request.messages)
        references = chat.images
        prompt = prompt_payload(chat, request)
        check_text(prompt, settings)
    limit = settings.image.max_per_request
    if len(references) > limit:
        message = f"{len(references)} images; at most {limit} are allowed (image.max_per_request)"
        raise RequestError(message, param="images")
    return Work(media.sort(references), prompt)


def check_text(text: bytes, settings: Settings) -> None:
    """Refuse a text, or a chat as JSON, that is too long to be worked on."""
    limit = settings.tokenizer.max_text_bytes
    if len(text) > limit:
        message = f"a text of {len(text)} bytes; at most {limit} (tokenizer.max_text_bytes)"
        raise BodyTooLargeError(message)


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
    kept: PlanImages | None = None,
) -> Preprocessed:
    """Process all images and the prompt at the same time; the first fault ends the rest.

    The pixels stay in the workers' slots; `hold` counts them and releases them at its end. Only
    what the cache keeps is copied.
    """

    def admit(nbytes: int) -> None:
        _check_answer(hold.size + nbytes, max_response_bytes)
        hold.take(nbytes)

    async def processed(content: bytes, is_file: bool) -> _Image:
        key = b"" if kept is None else await kept.key(content, encoding, is_file=is_file)
        found = None if kept is None else kept.cache.get(key)
        if found is not None:
            admit(len(found.pixels))
            return found.facts, found.pixels, True
        lease = await pool.lease(content, encoding, is_file=is_file, request=hold)
        hold.keep(lease)
        admit(len(lease))
        facts = lease.result.image
        if kept is None or not kept.cache.fits(len(lease)):
            return facts, lease, False
        copied = await _copy(lease)
        lease.release()
        kept.cache.put(key, CachedImage(facts, copied))
        return facts, copied, False

    async def one_image(files: RequestImages, index: int, image: AskedImage) -> _Image:
        try:
            async with files.content(image) as (content, is_file):
                return await processed(content, is_file)
        except RequestError as error:
            # Images of one file share its error, which names the first of them.
            error.param = error.param or f"images[{index}]"
            raise

    async with media.of_request(work.images) as files:
        images = [one_image(files, index, each) for index, each in enumerate(work.images)]
        prompt = [] if work.prompt is None else [pool.prompt(work.prompt, len(images))]
        done = await _all(images + prompt)
    return _joined(done[: len(images)], done[-1] if prompt else None)


def _joined(answers: Sequence[_Image], prompt: tuple[TokensResult, bytes] | None) -> Preprocessed:
    results = tuple(facts for facts, _, _ in answers)
    input_ids = None if prompt is None else _expanded(*prompt, results)
    return Preprocessed(
        input_ids,
        results,
        tuple(pixels for _, pixels, _ in answers),
        tuple(was_kept for _, _, was_kept in answers),
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
    """Run all; of several faults raise that of the earliest piece, whichever came first.

    What stands behind a fault is cancelled, what stands before it may still have one.
    """
    tasks = [asyncio.ensure_future(piece) for piece in work]
    counting = tasks
    try:
        while running := [task for task in counting if not task.done()]:
            await asyncio.wait(running, return_when=asyncio.FIRST_EXCEPTION)
            counting = counting[: _first_fault(counting)]
            _cancel_once(tasks[len(counting) :])
    finally:
        _cancel_once([task for task in tasks if not task.done()])
        # Those that are done too: a fault that came with a cancellation would be in nobody's hands.
        await asyncio.gather(*tasks, return_exceptions=True)
    return [task.result() for task in tasks[: _first_fault(tasks) + 1]]


def _cancel_once(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Cancel, but not in the midst of what a task does because it was cancelled."""
    for task in tasks:
        if not task.cancelling():
            task.cancel()


def _first_fault(tasks: Sequence[asyncio.Future[Any]]) -> int:
    """Give the index of the first task that ended with a fault, the number of tasks without one."""
    faulty = (
        index
        for index, task in enumerate(tasks)
        if task.done() and not task.cancelled() and task.exception() is not None
    )
    return next(faulty, len(tasks))


def _check_answer(size: int, limit: int) -> None:
    if size > limit:
        raise BodyTooLargeError(
            f"pixel_values would have more than {limit} bytes (server.max_response_bytes, "
            "server.max_queued_bytes); send fewer images, or use image.dtype uint8"
        )


async def _copy(lease: ImageLease) -> bytearray:
    """Copy in pieces, with a turn for everybody else after each."""
    copied = bytearray()
    while len(copied) < len(lease):
        # Not made in one piece: its zeros would be written first, all in one turn.
        copied += lease.pixels[len(copied) : len(copied) + _COPIED_BYTES]
        await asyncio.sleep(0)
    return copied
