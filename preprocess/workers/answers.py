"""Whether what a worker answers can be true; it decodes hostile files, so it is not trusted."""

from __future__ import annotations

from typing import cast, get_args

from kimi_serve.schemas import messages
from kimi_serve.schemas.vocabulary import GpuFallback

from .jobs import Job

_FALLBACKS = (None, *get_args(GpuFallback))


def is_sound(answer: messages.Answer, payload: bytes, job: Job, slot_bytes: int) -> bool:
    """Say whether `answer` is of the kind that `job` asks for, and its size one that it can have.

    Its JSON may hold anything, whatever the type of a field says.
    """
    match answer:
        case messages.ImageResult():
            fits = is_whole(answer.nbytes) and 0 <= answer.nbytes <= slot_bytes
            return job.is_image and fits and answer.gpu_fallback in _FALLBACKS
        case messages.TokensResult():
            return not job.is_image and len(payload) % messages.ID_BYTES == 0
        case messages.JobFailed():
            return all(isinstance(said, str) for said in _words(answer))


def is_whole(number: object) -> bool:
    """Say whether it is an integer, which True is not."""
    return type(number) is int


def _words(failed: messages.JobFailed) -> tuple[object, ...]:
    optional = cast("tuple[object, ...]", (failed.hint, failed.param))
    return (failed.error, failed.message, *(said for said in optional if said is not None))
