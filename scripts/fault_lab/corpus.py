"""Requests whose right answers are known: computed here, by the library, without any server."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pybase64

from kimi_serve.preprocess.text.chat import parse_messages
from kimi_serve.preprocess.text.prompt import TokenizedPrompt, expand
from kimi_serve.preprocess.workers.processor import KimiProcessor
from kimi_serve.schemas.errors import RequestError
from kimi_serve.schemas.image_facts import ImageFacts
from kimi_serve.schemas.messages import ImageJob, PromptJob, TextJob

from .http_client import Answer

SAFETENSORS = "application/vnd.safetensors"
DATA = Path(__file__).parents[2] / "tests" / "data"

SMALL = (
    "golden/photo444_200x150.jpg", "golden/photo420_201x151.jpg", "golden/gray_160x90.jpg",
    "golden/progressive_320x240.jpg", "golden/cmyk_64x48.jpg", "golden/exif6_120x80.jpg",
    "golden/rgba_300x200.png", "golden/pal_120x77.png", "golden/g16_50x40.png",
    "golden/tall_40x150.png", "golden/px1_1x1.png", "golden/sq_224x224.png",
    "images/exif_rot8.jpg", "images/alpha.webp", "images/lossy.webp", "images/anim.webp",
    "images/p_trns_index.png", "images/mpo.jpg", "images/restart.jpg", "images/adam7.png",
)  # fmt: skip
MEDIUM = ("golden/wide_7168x100.png", "golden/hd_1920x1080.png", "images/7200x20.png")
BIG = ("golden/phone_1440x3120.png", "golden/edge_1806x1792.png", "golden/pano_20000x50.png")
BROKEN = (
    "images/truncated.jpg", "images/truncated.png", "images/bad_zlib.png", "images/soi_only.jpg",
    "images/broken_second_idat.png", "images/bomb_144mp.png", "images/bomb_400mp.png",
    "images/html_404_as.jpg", "images/svg_as.png", "images/one.bin", "images/elf_as.png",
    "images/ztxt_bomb.png", "images/height_lie_65500.jpg", "images/p_no_palette.png",
)  # fmt: skip
TEXTS = ("hello", "what is shown here?", "Ein längerer Text. " * 40, "<|media_pad|> stays text")


@dataclass(frozen=True, slots=True)
class Known:
    """A request and the check of its answer: None when it is right, else what is wrong."""

    kind: str
    path: str
    body: bytes
    accept: str
    check: Callable[[Answer], str | None]


@dataclass(frozen=True, slots=True)
class _Image:
    reference: str
    facts: ImageFacts | None
    pixels_sha256: str
    pixels: bytes
    error: RequestError | None


class Corpus:
    """Makes requests from files; every file is processed once, here."""

    def __init__(self, processor: KimiProcessor, slot_bytes: int) -> None:
        self._processor = processor
        self._out = memoryview(bytearray(slot_bytes))
        self._images: dict[str, _Image] = {}

    def images(self, kind: str, names: Sequence[str], accept: str = SAFETENSORS) -> Known:
        """Ask for images alone; one that is refused must be refused by name."""
        known = [self._image(name) for name in names]
        body = json.dumps({"images": [image.reference for image in known]}).encode()
        return Known(kind, "/v1/preprocess", body, accept, self._check(known, None))

    def chat(self, kind: str, names: Sequence[str], text: str, accept: str = SAFETENSORS) -> Known:
        """Ask for a chat with images."""
        known = [self._image(name) for name in names]
        parts: list[dict[str, Any]] = [
            {"type": "image_url", "image_url": {"url": image.reference}} for image in known
        ]
        messages = [{"role": "user", "content": [*parts, {"type": "text", "text": text}]}]
        body = json.dumps({"messages": messages}).encode()
        return Known(
            kind, "/v1/preprocess", body, accept, self._check(known, self._ids(messages, known))
        )

    def text(self, text: str) -> Known:
        """Ask for the tokens of a text."""
        result = self._processor.text(TextJob(1), text.encode())[1]
        expected = memoryview(result).cast("i").tolist()

        def check(answer: Answer) -> str | None:
            if answer.status != 200:
                return f"status {answer.status}"
            return None if json.loads(answer.body)["tokens"] == expected else "other tokens"

        body = json.dumps({"prompt": text}).encode()
        return Known("text", "/tokenize", body, "application/json", check)

    def _image(self, name: str) -> _Image:
        if name not in self._images:
            data = (DATA / name).read_bytes()
            reference = f"data:image/x;base64,{base64.b64encode(data).decode()}"
            content = reference.encode()
            try:
                done = self._processor.image(
                    ImageJob(1, 0, "raw", is_file=False), content, self._out
                )
            except RequestError as error:
                self._images[name] = _Image(reference, None, "", b"", error)
            else:
                pixels = bytes(self._out[: done.nbytes])
                digest = hashlib.sha256(pixels).hexdigest()
                self._images[name] = _Image(reference, done.image, digest, pixels, None)
        return self._images[name]

    def _ids(self, messages: list[dict[str, Any]], known: Sequence[_Image]) -> list[int] | None:
        if any(image.facts is None for image in known):
            return None
        chat = parse_messages(messages)
        request: dict[str, Any] = {
            "messages": chat.messages,
            "tools": None,
            "template_kwargs": {},
            "add_generation_prompt": True,
        }
        job = PromptJob(1, len(known))
        result, ids = self._processor.prompt(job, json.dumps(request).encode())
        prompt = TokenizedPrompt(memoryview(ids).cast("i").tolist(), result.slots)
        return list(expand(prompt, [image.facts.num_tokens for image in known if image.facts]).ids)

    def _check(
        self, known: Sequence[_Image], input_ids: list[int] | None
    ) -> Callable[[Answer], str | None]:
        for index, image in enumerate(known):
            if image.error is not None:
                return _refused(image.error, index)
        facts = [image.facts for image in known if image.facts is not None]
        digest = hashlib.sha256(b"".join(image.pixels for image in known)).hexdigest()
        expected = {
            "pixels": digest,
            "grids": [list(each.grid_thw) for each in facts],
            "tokens": [each.num_tokens for each in facts],
            "contents": [each.sha256 for each in facts],
            "input_ids": input_ids,
        }

        def check(answer: Answer) -> str | None:
            if answer.status != 200:
                return f"status {answer.status}: {answer.body[:200]!r}"
            found = _read(answer)
            wrong = [name for name, value in expected.items() if found[name] != value]
            return f"other {', '.join(wrong)}" if wrong else None

        return check


def _refused(error: RequestError, index: int) -> Callable[[Answer], str | None]:
    def check(answer: Answer) -> str | None:
        if answer.status != error.status:
            return f"status {answer.status}, not {error.status}: {answer.body[:200]!r}"
        said = json.loads(answer.body)["error"]
        return None if said["param"] == f"images[{index}]" else f"blames {said['param']}"

    return check


def _read(answer: Answer) -> Mapping[str, Any]:
    """Give what an answer says, the same from JSON and from safetensors."""
    if answer.headers["content-type"] != SAFETENSORS:
        document = json.loads(answer.body)
        pixels: bytes = pybase64.b64decode(document["pixel_values"]["data"])
        images, ids, grids = document["images"], document["input_ids"], document["grid_thws"]
    else:
        size = int.from_bytes(answer.body[:8], "little")
        header = json.loads(answer.body[8 : 8 + size])
        tensors = memoryview(answer.body)[8 + size :]

        def part(name: str) -> memoryview:
            start, end = header[name]["data_offsets"]
            return tensors[start:end]

        pixels = bytes(part("pixel_values"))
        flat = part("grid_thws").cast("q").tolist()
        grids = [flat[at : at + 3] for at in range(0, len(flat), 3)]
        images = json.loads(header["__metadata__"]["images"])
        ids = part("input_ids").cast("q").tolist() if "input_ids" in header else None
    return {
        "pixels": hashlib.sha256(pixels).hexdigest(),
        "grids": grids,
        "tokens": [image["num_tokens"] for image in images],
        "contents": [image["sha256"] for image in images],
        "input_ids": ids,
    }
