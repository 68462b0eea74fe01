"""Numbers of engine.args as the engines' parsers read them, and those that cannot work: KS104."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from kimi_serve.schemas.findings import Finding

from ..resolver.engine_view import ARGS, Given
from ..resolver.situation import Situation
from .given import words
from .wording import at

# Decimal suffixes take a fraction, binary ones do not; the engines differ in what is binary.
_SUFFIXED = {
    "sglang": r"[0-9]+(\.[0-9]+)?[kMGT]|[0-9]+[KMGT]i",
    "vllm": r"[0-9]+(\.[0-9]+)?[kmgt]|[0-9]+[KMGT]",
}
_FORMS = {
    "sglang": "1000, 1k, 1.5M or 1Ki",
    "vllm": "1000, 1k, 1.5m or 1K",
}
_LENGTH = "--max-model-len"
# Sizes that divide or multiply: 0 and less are taken by a parser and fail, or loop, behind it.
_COUNTS = {
    "sglang": (
        *("--tp-size", "--pp-size", "--dp-size", "--ep-size", "--nnodes", "--dcp-size"),
        *("--attn-cp-size", "--attn-dp-size", "--moe-dp-size", "--moe-dense-tp-size"),
        *("--dwdp-size", "--context-length", "--max-total-tokens", "--max-prefill-tokens"),
        *("--page-size", "--max-running-requests"),
    ),
    "vllm": (
        *("--tensor-parallel-size", "--pipeline-parallel-size", "--data-parallel-size"),
        *("--decode-context-parallel-size", "--prefill-context-parallel-size", "--nnodes"),
        *(_LENGTH, "--max-num-batched-tokens", "--max-num-scheduled-tokens", "--max-num-seqs"),
        *("--kv-cache-memory-bytes", "--block-size"),
    ),
}


def is_human_number(engine: str, flag: str, text: str) -> bool:
    """Tell whether an engine's parser reads a text as a whole number with a unit."""
    word = text.strip()
    if flag == _LENGTH and word.casefold() in ("auto", "-1"):
        return True
    return _whole(word) is not None or re.fullmatch(_SUFFIXED[engine], word) is not None


def forms_of(engine: str) -> str:
    """Give examples of what an engine takes for a number with a unit."""
    return _FORMS[engine]


def _whole(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def impossible_sizes(situation: Situation) -> Iterator[Finding]:
    """Say which sizes the engine's parser takes although nothing can have them (KS104)."""
    if situation.kind == "none":
        return
    for word in words(situation, *_COUNTS[situation.kind]):
        number = _whole(word.text)
        is_auto = word.flag == _LENGTH and number == -1
        if number is None or number > 0 or is_auto or word.argument.key:
            continue
        given = Given(word.argument.spelling, word.text, word.origin, ARGS)
        message = f"{given.name} {number} cannot work: it must be above 0"
        yield at("KS104", given, message, "write a number from 1, or remove it")


RULES: tuple[Callable[[Situation], Iterator[Finding]], ...] = (impossible_sizes,)
