"""Finds the image arithmetic in a checkpoint's processor files, whichever of the layouts they have.

A block is one set of parameters in one file. Blocks are ordered; the first is followed, and where
a later one says something else that is told, because the engines do not read the same blocks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from kimi_serve.schemas.errors import PlanError
from kimi_serve.schemas.worker import ResizeConfig

from .json_files import JsonObject, as_list, kind_of, object_at, show

CONFIG = "config.json"
PREPROCESSOR = "preprocessor_config.json"
PROCESSOR = "processor_config.json"

# The parameters, with the smallest and the largest value of each that makes sense.
COUNTS = {
    "in_patch_limit": (1, 1 << 20),
    "patch_limit_on_one_side": (1, 1 << 16),
    "patch_size": (1, 1024),
    "merge_kernel_size": (1, 64),
}
SIDES = ("patch_size", "merge_kernel_size")  # may be written as a pair of equal numbers
SMALLEST_STD = 1e-6  # 1/std must stay finite in float32
COLOURS = {"image_mean": (0.0, 1.0), "image_std": (SMALLEST_STD, 16.0)}

# The same parameters in the words of transformers' native class.
NATIVE_KEYS = {
    "in_patch_limit": "max_patches",
    "patch_limit_on_one_side": "size.max_height",
    "patch_size": "patch_size",
    "merge_kernel_size": "merge_size",
    "image_mean": "image_mean",
    "image_std": "image_std",
}
MEDIA_KEYS = {name: name for name in NATIVE_KEYS}

Triple = tuple[float, float, float]
Value = int | Triple


@dataclass(frozen=True, slots=True)
class Block:
    """One set of parameters: where it stands, how it spells them, what it says."""

    path: Path
    name: str
    keys: Mapping[str, str]
    values: JsonObject

    @property
    def place(self) -> str:
        return f"{self.path.name} {self.name}"


@dataclass(frozen=True, slots=True)
class ImageParameters:
    """The parameters that are followed, their place, and sentences about contradictions."""

    resize: ResizeConfig
    source: str
    disagreements: tuple[str, ...]


def find_blocks(files: Mapping[str, JsonObject], directory: Path, *, native: bool) -> list[Block]:
    """List the blocks in reading order; `native` adds those in transformers' own words."""
    media: list[Block] = []
    plain: list[Block] = []
    for file in (PREPROCESSOR, PROCESSOR):
        path = directory / file
        values: JsonObject | None = files.get(file)
        prefix = ""
        if values is not None and file == PROCESSOR:
            values, prefix = object_at(values, "image_processor", path), "image_processor."
        if values is None:
            continue
        config = object_at(values, "media_proc_cfg", path)
        if config is not None:
            media.append(Block(path, f"{prefix}media_proc_cfg", MEDIA_KEYS, config))
        flat = _flatten(values, path)
        if native and any(key in flat for key in NATIVE_KEYS.values()):
            plain.append(Block(path, prefix.rstrip(".") or "native keys", NATIVE_KEYS, flat))
    return media + plain


def read_image_parameters(blocks: list[Block], vision: JsonObject | None) -> ImageParameters:
    """Follow the first block; compare the others and config.json's `vision_config` with it."""
    readings = [(block, read_block(block)) for block in blocks]
    followed, found = readings[0]
    missing = [spelling for name, spelling in followed.keys.items() if name not in found]
    if missing:
        message = f"{followed.path}: {followed.name} lacks {', '.join(missing)}"
        raise PlanError(message)
    sentences = [
        sentence
        for other, values in readings[1:]
        for sentence in _compare((followed, found), (other, values))
    ]
    if vision is not None:
        keys = {name: name for name in SIDES}
        tower = Block(followed.path.with_name(CONFIG), "vision_config", keys, vision)
        sentences += _compare((followed, found), (tower, read_block(tower)))
    return ImageParameters(_config(found, followed), followed.place, tuple(sentences))


def read_block(block: Block) -> dict[str, Value]:
    """Read and check the parameters that a block has; absent and null ones are left out."""
    fixed = block.values.get("fixed_output_tokens")
    if fixed is not None:
        message = (
            f"{block.path}: {block.name} sets fixed_output_tokens to {show(fixed)}; only null is "
            "allowed, because it changes the token count and not the patch grid"
        )
        raise PlanError(message)
    found: dict[str, Value] = {}
    for name, spelling in block.keys.items():
        value = block.values.get(spelling)
        if value is not None:
            is_count = name in COUNTS
            found[name] = _count(block, name, value) if is_count else _colour(block, name, value)
    return found


def _flatten(values: JsonObject, path: Path) -> JsonObject:
    """Lift the one limit out of `size`; a size in other words is none of ours."""
    flat = dict(values)
    if "max_patches" not in values and "max_height" not in str(values.get("size")):
        return flat
    size = object_at(values, "size", path) or {}
    height, width = size.get("max_height"), size.get("max_width", size.get("max_height"))
    if height != width:
        message = (
            f"{path}: size.max_height {show(height)} and size.max_width {show(width)} must be "
            "equal: the limit of patches along one side is one number"
        )
        raise PlanError(message)
    if height is not None:
        flat["size.max_height"] = height
    return flat


def _count(block: Block, name: str, value: object) -> int:
    low, high = COUNTS[name]
    allowed = f"a whole number from {low} to {high}"
    number = value
    if name in SIDES:
        allowed += ", or a pair of it"
        pair = as_list(value)
        if pair is not None:
            number = pair[0] if len(pair) == 2 and pair[0] == pair[1] else None
    if isinstance(number, bool) or not isinstance(number, int) or not low <= number <= high:
        raise _refusal(block, name, value, allowed)
    return number


def _colour(block: Block, name: str, value: object) -> Triple:
    low, high = COLOURS[name]
    numbers = as_list(value) or []
    checked = [
        float(number)
        for number in numbers
        if isinstance(number, int | float)
        and not isinstance(number, bool)
        and math.isfinite(number)
        and low <= number <= high
    ]
    if len(numbers) != 3 or len(checked) != 3:
        allowed = f"a list of three numbers from {low:g} to {high:g} (pixels are scaled to 0..1)"
        raise _refusal(block, name, value, allowed)
    return (checked[0], checked[1], checked[2])


def _refusal(block: Block, name: str, value: object, allowed: str) -> PlanError:
    return PlanError(
        f"{block.path}: {block.name}: {block.keys[name]} is {kind_of(value)} {show(value)}; "
        f"allowed is {allowed}"
    )


def _config(found: Mapping[str, Value], block: Block) -> ResizeConfig:
    counts = {name: cast("int", found[name]) for name in COUNTS}
    if counts["patch_limit_on_one_side"] < counts["merge_kernel_size"]:
        message = (
            f"{block.path}: {block.name}: {block.keys['patch_limit_on_one_side']} "
            f"{counts['patch_limit_on_one_side']} must be at least "
            f"{block.keys['merge_kernel_size']} {counts['merge_kernel_size']}"
        )
        raise PlanError(message)
    return ResizeConfig(
        **counts,
        image_mean=cast("Triple", found["image_mean"]),
        image_std=cast("Triple", found["image_std"]),
    )


def _compare(
    followed: tuple[Block, Mapping[str, Value]], other: tuple[Block, Mapping[str, Value]]
) -> Iterator[str]:
    block, ours = followed
    rival, theirs = other
    for name, value in theirs.items():
        if value != ours[name]:
            yield (
                f"{block.place} says {block.keys[name]} {_plain(ours[name])}, {rival.place} says "
                f"{rival.keys[name]} {_plain(value)}: {_readers(rival)}; kimi-serve follows "
                f"{block.place}"
            )


def _readers(rival: Block) -> str:
    if rival.path.name == CONFIG:
        return "the model's vision tower is built by the latter, every image processor by the other"
    return "native transformers reads its own keys, SGLang and vLLM read media_proc_cfg"


def _plain(value: Value) -> str:
    return str(list(value)) if isinstance(value, tuple) else str(value)
