"""What one worker does: references to pixels, chats and texts to token ids.

`build_processor` turns a `WorkerSpec` into a `KimiProcessor`; nothing else decides a device.
"""

from __future__ import annotations

import functools
import json
from array import array
from importlib.metadata import version
from pathlib import Path
from typing import Any

from kimi_serve.schemas import messages
from kimi_serve.schemas.errors import PlanError, RequestError
from kimi_serve.schemas.worker import Device, TokenizerSpec, WorkerSpec

from ..images.image_processor import ImageProcessor
from ..images.reference import read_reference
from ..native.choice import KernelChoice
from ..text.chat import Chat
from ..text.load import load_tokenizer
from ..text.prompt import render_prompt
from ..text.template import ChatTemplate, load_chat_template
from ..text.tokenizer import Tokenizer
from .base64_pixels import write_base64

TextTools = tuple[Tokenizer, ChatTemplate]

_LIBRARIES = ("kimi-serve", "numpy", "pillow", "simplejpeg", "zlib-ng", "tiktoken", "tokenizers")
_GPU_LIBRARIES = ("torch", "torchvision")


class KimiProcessor:
    """Image processor and tokenizer of one worker."""

    def __init__(
        self,
        images: ImageProcessor,
        tools: TextTools | None,
        *,
        decode_device: Device,
        preprocess_device: Device,
    ) -> None:
        self._images = images
        self._tools = tools
        self.decode_device = decode_device
        self.preprocess_device = preprocess_device

    def image(
        self, job: messages.ImageJob, content: bytes, out: memoryview
    ) -> messages.ImageResult:
        """Process the image that `content` is, or holds as a data URL, into the start of `out`."""
        data = content
        if not job.is_file:
            data = read_reference(content, self._images.rules.max_bytes)
        if job.encoding == "base64":
            # The last three quarters: room for all bytes whose base64 fits into `out`.
            raw = out[out.nbytes - 3 * out.nbytes // 4 :]
            done = self._images.process(data, raw)
            nbytes = write_base64(raw[: done.nbytes], out)
        else:
            done = self._images.process(data, out)
            nbytes = done.nbytes
        return messages.ImageResult(job.id, done, nbytes, self._images.fallback)

    def prompt(
        self, job: messages.PromptJob, payload: bytes
    ) -> tuple[messages.TokensResult, bytes]:
        """Render and tokenise a chat; one placeholder an image, ids as little-endian int32."""
        tokenizer, template = self._texts()
        request: dict[str, Any] = json.loads(payload)
        prompt = render_prompt(
            Chat(messages=tuple(request["messages"]), images=("",) * job.num_images),
            template,
            tokenizer,
            add_generation_prompt=request["add_generation_prompt"],
            template_kwargs=request["template_kwargs"],
            tools=request["tools"],
        )
        result = messages.TokensResult(job.id, tuple(prompt.slots), tokenizer.placeholder_id)
        return result, array("i", prompt.ids).tobytes()

    def text(self, job: messages.TextJob, payload: bytes) -> tuple[messages.TokensResult, bytes]:
        """Tokenise a text as it stands, without a template; special tokens in it stay text."""
        tokenizer, _ = self._texts()
        ids = tokenizer.encode_text(payload.decode())
        result = messages.TokensResult(job.id, (), tokenizer.placeholder_id)
        return result, array("i", ids).tobytes()

    @property
    def image_kernel(self) -> KernelChoice:
        """Say which path makes the pixels."""
        return self._images.kernel

    def release_memory(self) -> None:
        """Give back what is kept for the next image."""
        self._images.release_memory()

    def versions(self) -> dict[str, str]:
        """Give the versions of the libraries that make the pixels and the ids."""
        extra = _GPU_LIBRARIES if self.preprocess_device == "cuda" else ()
        return library_versions() | {name: version(name) for name in extra}

    def _texts(self) -> TextTools:
        if self._tools is None:
            raise RequestError(
                "this server has no tokenizer (tokenizer.skip_init is on); send `images` instead"
            )
        return self._tools


@functools.cache
def library_versions() -> dict[str, str]:
    """Look up the versions that every worker tells, once for all that are forked afterwards."""
    return {name: version(name) for name in _LIBRARIES}


def build_processor(spec: WorkerSpec) -> KimiProcessor:
    """Build the processor that `spec` describes; raises PlanError when its files do not fit."""
    if spec.decode_device != spec.preprocess_device:
        raise PlanError("the built-in workers decode and preprocess on the same device")
    return KimiProcessor(
        _image_processor(spec),
        None if spec.tokenizer is None else text_tools(spec.tokenizer),
        decode_device=spec.decode_device,
        preprocess_device=spec.preprocess_device,
    )


def _image_processor(spec: WorkerSpec) -> ImageProcessor:
    if spec.preprocess_device == "cpu":
        return ImageProcessor(spec.resize, spec.rules, spec.image_kernel)
    from ..cuda.image_processor import open_image_processor

    return open_image_processor(spec.resize, spec.rules, spec.gpu_budget_bytes, spec.image_kernel)


@functools.lru_cache(maxsize=1)
def text_tools(spec: TokenizerSpec) -> TextTools:
    """Load tokenizer and template, once for all workers that are forked afterwards.

    They are those of the files as they were then: whoever wants newer ones has a new fork server.
    An error is not kept.
    """
    places = [Path(place) for place in (spec.directory, spec.model_directory) if place]
    return load_tokenizer(spec), load_chat_template(*places)
