"""Coverage-guided fuzzing of what a worker does with a request; `make fuzz` runs it.

Three targets. `file`: a byte that chooses the rules, then the bytes of an image. `reference`: the
text that names an image. `chat`: a JSON array of messages, in which `@IMAGE@` is an image part.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kimi_serve.preprocess.images.image_processor import ImageProcessor
    from kimi_serve.schemas.errors import RequestError

# The product is imported inside functions: a run instruments it while it is first imported.

MAX_PIXELS = 200_000
MAX_BYTES = 1 << 20
LONGEST_MESSAGE = 700
_IMAGE = b'{"type":"image_url","image_url":{"url":"data:,x"}}'
_LEAK = re.compile(r"\b0x[0-9a-fA-F]{4,}|/(?:usr|tmp|home|root|work|site-packages)\b|Traceback")
_DTYPES = ("float32", "bfloat16", "uint8")


@cache
def processors(selector: int) -> tuple[ImageProcessor, ImageProcessor]:
    """Give the processor in plain numpy and the one that this machine would choose."""
    from image_samples import DISPLAY, KIMI

    from kimi_serve.preprocess.images.image_processor import ImageProcessor

    rules = replace(
        DISPLAY,
        policy="checkpoint" if selector & 1 else "display",
        dtype=_DTYPES[selector // 2 % 3],
        background=(0, 127, 255) if selector & 8 else (255, 255, 255),
        max_pixels=MAX_PIXELS,
        max_bytes=MAX_BYTES,
    )
    small = replace(KIMI, in_patch_limit=64, patch_limit_on_one_side=16)
    resize = small if selector & 16 else KIMI
    return ImageProcessor(resize, rules, "pure"), ImageProcessor(resize, rules)


def judge_file(data: bytes) -> None:
    """An image gives its patches, the same on every path and every time, or a fault with words."""
    from kimi_serve.schemas.errors import MediaError

    selector, file = (data[0] if data else 0) % 32, data[1:]
    outcomes: list[object] = []
    for processor in (*processors(selector), processors(selector)[1]):
        try:
            facts, pixels = processor.process_array(file)
        except MediaError as error:
            check_refusal(error, (400, 413, 415))
            outcomes.append((type(error), error.message))
            continue
        _, height, width = facts.grid_thw
        assert 1 <= facts.width * facts.height <= MAX_PIXELS
        assert facts.num_tokens == height * width // 4 >= 1
        assert pixels.shape == facts.shape
        assert pixels.nbytes == facts.nbytes
        outcomes.append((replace(facts, decode_ms=0, preprocess_ms=0), pixels.tobytes()))
    assert outcomes[0] == outcomes[1] == outcomes[2]


def judge_reference(data: bytes) -> None:
    """A text gives the bytes that it carries, or a fault with words, and opens nothing."""
    from kimi_serve.preprocess.images.reference import classify, read_inline, read_reference
    from kimi_serve.schemas.errors import MediaError

    text = data.decode("utf-8", "replace")
    try:
        carried = read_inline(text, 4096)
    except MediaError as error:
        check_refusal(error, (400, 413))
    else:
        assert classify(text) == "inline"
        assert len(carried) <= 4096
        assert read_reference(text.encode(), 4096) == carried


def judge_chat(data: bytes) -> None:
    """A chat gives ids with one placeholder an image, whatever its texts spell, or a 400."""
    from demo import PAD, demo_template, demo_tokenizer

    from kimi_serve.preprocess.text.chat import parse_messages
    from kimi_serve.preprocess.text.prompt import expand, render_prompt
    from kimi_serve.schemas.errors import RequestError

    try:
        messages = json.loads(data.replace(b"@IMAGE@", _IMAGE))
    except (ValueError, RecursionError):
        return
    try:
        chat = parse_messages(messages)
        prompt = render_prompt(chat, demo_template(), demo_tokenizer())
    except RequestError as error:
        check_refusal(error, (400,))
        return
    assert [at for at, id in enumerate(prompt.ids) if id == PAD] == list(prompt.slots)
    assert len(prompt.slots) == len(chat.images)
    counts = [1 + number % 3 for number in range(len(chat.images))]
    assert expand(prompt, counts).ids.count(PAD) == sum(counts)


def check_refusal(error: RequestError, statuses: tuple[int, ...]) -> None:
    """A refusal is short, has a status of its kind, and shows nothing of the machine."""
    assert error.status in statuses
    assert 0 < len(error.message) <= LONGEST_MESSAGE
    assert not _LEAK.search(error.message), error.message


TARGETS: dict[str, Callable[[bytes], None]] = {
    "file": judge_file,
    "reference": judge_reference,
    "chat": judge_chat,
}


def main() -> None:
    """Run libFuzzer on the target named first, with the options behind it."""
    # By name: it is installed with the fuzz group only, and published stubs lack half of it.
    atheris: Any = import_module("atheris")
    sys.path.insert(0, str(Path(__file__).parents[1]))
    name = sys.argv[1]
    judge = TARGETS[name]
    seed = {"file": b"\0\x89PNG", "reference": b"data:,x", "chat": b'[{"role":"user"}]'}[name]
    with atheris.instrument_imports(include=["kimi_serve", "PIL"]):
        judge(seed)
    # A merge starts itself again, through a shell, by its first words.
    again = shlex.join((sys.executable, str(Path(__file__).resolve()), name))
    atheris.Setup([again, *sys.argv[2:]], judge)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
