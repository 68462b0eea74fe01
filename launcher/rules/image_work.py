"""Which server of a deployment prepares images: not every one that is told how to."""

from __future__ import annotations

from kimi_serve.schemas.engine_names import K25

from ..resolver.engine_view import Given
from ..resolver.situation import Situation
from .given import switch
from .wording import json_object

_NO_WORKERS = ("--encoder-only", "--smg-grpc-mode")
_ADAPTIVE = "--enable-adaptive-dispatch-to-encoder"


def workers_prepare_images(situation: Situation) -> bool:
    """Tell whether SGLang's tokenizer workers touch images, if there are any.

    A language-only server sends each image to its encoder, but for few at a time when it may
    choose.
    """
    if text_only(situation) or any(switch(situation, flag) for flag in _NO_WORKERS):
        return False
    is_elsewhere = switch(situation, "--language-only") and not switch(situation, _ADAPTIVE)
    return not is_elsewhere


def text_only(situation: Situation) -> Given | None:
    """Give what turns the images of any model off, None where they are on."""
    flag = "--language-model-only"
    if switch(situation, flag):
        return situation.flag(flag)
    limit = situation.flag("--limit-mm-per-prompt") if situation.kind == "vllm" else None
    if limit is None or situation.is_one_of((K25,)):
        return None  # that model counts its images by another name
    counts = json_object(limit)
    is_off = counts.get("image") == 0 and not counts.get("video") and not counts.get("vision_chunk")
    return limit if is_off else None


def encodes_only(situation: Situation) -> bool:
    """Tell whether this is SGLang's encoder server, which has a switch of its own."""
    return situation.kind == "sglang" and switch(situation, "--encoder-only") is not None
