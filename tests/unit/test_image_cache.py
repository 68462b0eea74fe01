"""The image cache: whole keys, every setting in them, a bound in bytes, the last used stay."""

from __future__ import annotations

import asyncio
import sys
import tracemalloc
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from image_samples import DISPLAY, KIMI, SPEC

from kimi_serve.launcher.front.image_cache import (
    ENTRY_OVERHEAD_BYTES,
    CachedImage,
    ImageCache,
    PlanImages,
)
from kimi_serve.schemas.image_facts import ImageFacts
from kimi_serve.schemas.worker import ImageRules, ResizeConfig, TokenizerSpec, WorkerSpec


def facts(name: str = "x") -> ImageFacts:
    return ImageFacts(
        1, 1, "png", False, (1, 1), (1, 2, 2), 1, (4, 3, 14, 14), 9408, name * 64, 0.1, 0.2
    )


def image(size: int) -> CachedImage:
    return CachedImage(facts(), bytearray(size))


def cache(max_bytes: int = 10**6) -> ImageCache:
    made = ImageCache()
    made.limit(max_bytes)
    return made


def key(spec: WorkerSpec = SPEC, content: bytes = b"content", encoding: Any = "raw") -> bytes:
    return asyncio.run(PlanImages(cache(), spec).key(content, encoding))


OTHER_SPEC: dict[str, Any] = {
    "decode_device": "cuda", "preprocess_device": "cuda", "env": (("CUDA_VISIBLE_DEVICES", "1"),),
    "image_kernel": "pure",
}  # fmt: skip
# No pixel depends on these: a reload that changes them finds what the plan before has kept.
NO_MATTER: dict[str, Any] = {
    "tokenizer": TokenizerSpec("/m", "tokenizer.json", None),
    "index": 1, "slots": 9, "slot_bytes": 9, "memory_bytes": 9, "gpu_budget_bytes": 9,
    "log_level": "error", "log_format": "json",
}  # fmt: skip
OTHER_RULES: dict[str, Any] = {
    "policy": "checkpoint", "background": (0, 0, 0), "dtype": "bfloat16", "max_pixels": 7,
    "max_bytes": 7, "formats": ("png",),
}  # fmt: skip
OTHER_RESIZE: dict[str, Any] = {
    "in_patch_limit": 7, "patch_limit_on_one_side": 7, "patch_size": 16, "merge_kernel_size": 1,
    "image_mean": (0.1, 0.5, 0.5), "image_std": (0.1, 0.5, 0.5),
}  # fmt: skip


def test_every_setting_is_in_the_key() -> None:
    assert {field.name for field in fields(ImageRules)} == set(OTHER_RULES)
    assert {field.name for field in fields(ResizeConfig)} == set(OTHER_RESIZE)
    parts = {"rules", "resize"}
    assert {field.name for field in fields(WorkerSpec)} == parts | set(OTHER_SPEC) | set(NO_MATTER)
    rules = [replace(DISPLAY, **{name: value}) for name, value in OTHER_RULES.items()]
    resizes = [replace(KIMI, **{name: value}) for name, value in OTHER_RESIZE.items()]
    specs = [
        SPEC,
        *(replace(SPEC, rules=other) for other in rules),
        *(replace(SPEC, resize=other) for other in resizes),
        *(replace(SPEC, **{name: value}) for name, value in OTHER_SPEC.items()),
    ]
    keys = {key(each) for each in specs} | {key(encoding="base64")}
    assert len(keys) == len(specs) + 1


@pytest.mark.parametrize("name", NO_MATTER)
def test_what_makes_no_other_pixels_is_not(name: str) -> None:
    assert key(replace(SPEC, **{name: NO_MATTER[name]})) == key()


def test_a_lower_bound_holds_from_the_moment_it_is_set() -> None:
    tried = cache(10**6)
    for number in range(4):
        tried.put(bytes([number]), image(100_000))
    tried.get(b"\0")
    tried.limit(250_000)
    assert [number for number in range(4) if tried.get(bytes([number]))] == [0, 3]
    assert tried.held_bytes == 2 * (100_000 + ENTRY_OVERHEAD_BYTES)
    tried.limit(0)
    assert (len(tried), tried.held_bytes) == (0, 0)
    # A request of the plan before may still bring its image.
    tried.put(b"late", image(1))
    assert (len(tried), tried.held_bytes) == (0, 0)
    assert tried.evictions == 4


@pytest.mark.parametrize("size", [1, 1000, 1001, 2**18, 2**18 + 1, 3 * 2**20])
def test_the_whole_content_is_in_a_key_that_is_not_cut(size: int) -> None:
    content = bytes(size)
    keys = {key(SPEC, content[:at] + b"\1" + content[at + 1 :]) for at in {0, size // 2, size - 1}}
    keys.add(key(SPEC, content))
    keys.add(key(SPEC, content + b"\0"))
    assert len(keys) == 2 + len({0, size // 2, size - 1})
    assert {len(each) for each in keys} == {32}


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 12), st.integers(0, 9000)), max_size=60))
@settings(deadline=None, database=None)
def test_the_bound_holds_and_the_last_used_stay(steps: list[tuple[bool, int, int]]) -> None:
    most = 30_000
    tried = cache(most)
    model: dict[bytes, CachedImage] = {}
    for is_put, number, size in steps:
        name = bytes([number])
        if is_put:
            new = image(size)
            tried.put(name, new)
            if name not in model:
                model[name] = new
                while (
                    sum(len(each.pixels) + ENTRY_OVERHEAD_BYTES for each in model.values()) > most
                ):
                    del model[next(iter(model))]
        else:
            assert tried.get(name) is model.get(name)
            if name in model:
                model[name] = model.pop(name)
        assert len(tried) == len(model)
        assert tried.held_bytes <= most
        assert tried.held_bytes == sum(
            len(each.pixels) + ENTRY_OVERHEAD_BYTES for each in model.values()
        )


def test_an_image_that_never_fits_evicts_nothing() -> None:
    tried = cache(10_000)
    tried.put(b"a", image(100))
    tried.put(b"b", image(10_000))
    assert tried.get(b"a") is not None
    assert tried.get(b"b") is None
    assert (tried.hits, tried.misses, tried.evictions) == (1, 1, 0)


def test_the_counted_overhead_covers_the_real_one() -> None:
    tried = cache(10**9)
    count = 2000
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for number in range(count):
        pixels = bytearray(64)
        kept = CachedImage(replace(facts(chr(97 + number % 26)), width=number + 10**6), pixels)
        tried.put(number.to_bytes(32, "big"), kept)
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert used / count < ENTRY_OVERHEAD_BYTES + 64
    assert len(tried) == count


def test_what_a_client_sent_is_not_kept() -> None:
    async def run() -> int:
        content = b"x" * 2**19
        before = sys.getrefcount(content)
        tried = PlanImages(cache(), SPEC)
        name = await tried.key(content, "raw")
        tried.cache.put(name, image(10))
        held = [*vars(tried).values(), *vars(tried.cache).values()]
        assert content not in (name, *held)
        while sys.getrefcount(content) > before:  # the thread lets go in its own time
            await asyncio.sleep(0)
        return len(tried.cache)

    assert asyncio.run(run()) == 1
