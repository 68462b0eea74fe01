"""The items of gpu.ids: how a GPU is named, by its index or by the UUID of it or of a slice."""

from __future__ import annotations

import re

_INDEX = re.compile(r"[0-9]{1,4}")
_UUID = re.compile(r"(GPU|MIG)-[0-9A-Za-z/-]+")


def is_gpu_id(text: str) -> bool:
    """Say whether a text names one GPU, as CUDA_VISIBLE_DEVICES takes it."""
    return bool(_INDEX.fullmatch(text) or _UUID.fullmatch(text))


def check_gpu_ids(ids: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Refuse what CUDA would read otherwise; raises ValueError.

    CUDA stops at the first item that names no GPU, and gives none at all where one is named twice.
    """
    seen: set[str] = set()
    for text in ids or ():
        if not is_gpu_id(text):
            raise ValueError(
                f"{text[:80]!r} names no GPU: write an index such as 0, or a UUID (GPU- or MIG-)"
            )
        key = str(int(text)) if text.isdecimal() else text.casefold()
        if key in seen:
            raise ValueError(f"{text!r} is there twice, and CUDA would give no GPU at all then")
        seen.add(key)
    return ids


def visible_ids(text: str) -> tuple[str, ...]:
    """Give the GPUs that a text of CUDA_VISIBLE_DEVICES names, as far as CUDA reads it."""
    found: list[str] = []
    for entry in map(str.strip, text.split(",")):
        if not is_gpu_id(entry):
            break
        found.append(entry)
    try:
        check_gpu_ids(tuple(found))
    except ValueError:
        return ()
    return tuple(found)
