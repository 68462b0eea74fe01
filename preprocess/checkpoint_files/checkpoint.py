"""Reads what the launcher must know of a checkpoint directory, with the standard library alone.

Knows config.json and the processor files; `locate` finds the directory, the tokenizer is read by
the workers.
"""

from __future__ import annotations

from pathlib import Path

from kimi_serve.schemas.checkpoint import CheckpointFacts, CheckpointOrigin
from kimi_serve.schemas.errors import PlanError
from kimi_serve.schemas.support import load_support
from kimi_serve.schemas.vocabulary import TOKENIZER_KINDS, TokenizerKind

from .image_parameters import (
    CONFIG,
    NATIVE_KEYS,
    PREPROCESSOR,
    PROCESSOR,
    ImageParameters,
    find_blocks,
    read_image_parameters,
)
from .json_files import JsonObject, as_list, is_there, kind_of, object_at, read_json_object, show
from .locate import Located, locate_checkpoint

CHAT_TEMPLATE = "chat_template.jinja"
TOKENIZER_CONFIG = "tokenizer_config.json"

__all__ = ["Located", "locate_checkpoint", "read_checkpoint"]


def read_checkpoint(
    directory: Path,
    *,
    origin: CheckpointOrigin,
    name: str,
    tokenizer_directory: Path | None = None,
) -> CheckpointFacts:
    """Read the facts of a checkpoint; `tokenizer_directory` is where else its tokenizer is."""
    config = _read_config(directory)
    architectures = _architectures(config, directory / CONFIG)
    vision = object_at(config, "vision_config", directory / CONFIG)
    files = _processor_files(directory)
    has_vision = bool(vision) or _has_image_processor(files)
    parameters = _image_parameters(directory, files, vision, architectures) if has_vision else None
    placeholder, placeholder_notes = _placeholder(config, directory / CONFIG)
    tokenizer = tokenizer_directory or directory
    return CheckpointFacts(
        directory=str(directory),
        origin=origin,
        name=name,
        architectures=architectures,
        model_type=_text(config, "model_type", directory / CONFIG),
        placeholder_id=placeholder,
        resize=parameters.resize if parameters else None,
        resize_source=parameters.source if parameters else "",
        disagreements=(parameters.disagreements if parameters else ()) + placeholder_notes,
        tokenizer_directory=str(tokenizer),
        tokenizer_kind=tokenizer_kind(tokenizer),
        has_vision=has_vision,
        has_chat_template=any(map(_has_chat_template, (tokenizer, directory))),
    )


def _has_chat_template(directory: Path) -> bool:
    """Say whether a template is there; whether it is a good one, its reader says."""
    if is_there(directory / CHAT_TEMPLATE):
        return True
    path = directory / TOKENIZER_CONFIG
    return is_there(path) and read_json_object(path).get("chat_template") is not None


def tokenizer_kind(directory: Path) -> TokenizerKind | None:
    """Say which tokenizer file a directory has; tokenizer.json goes first, as in transformers."""
    return next((kind for kind in TOKENIZER_KINDS if is_there(directory / kind)), None)


def _read_config(directory: Path) -> JsonObject:
    path = directory / CONFIG
    if not is_there(path):
        message = f"{directory} is no checkpoint: it has no {CONFIG}"
        raise PlanError(message, hint="give the directory that holds the model's config.json")
    return read_json_object(path)


def _architectures(config: JsonObject, path: Path) -> tuple[str, ...]:
    value = config.get("architectures")
    names = as_list(value) or []
    texts = tuple(name for name in names if isinstance(name, str) and name)
    if not texts or len(texts) != len(names):
        stands = f"is {kind_of(value)} {show(value)}" if "architectures" in config else "is missing"
        message = (
            f"{path}: architectures {stands}; it must be a list with the name of a model class"
        )
        name = load_support().built_in()[0]
        raise PlanError(message, hint=f'for Kimi-K2.5: "architectures": ["{name}"]')
    return texts


def _text(config: JsonObject, key: str, path: Path) -> str:
    value = config.get(key)
    if value is not None and not isinstance(value, str):
        message = f"{path}: {key} must be a string, not {kind_of(value)} {show(value)}"
        raise PlanError(message)
    return value or ""


def _processor_files(directory: Path) -> dict[str, JsonObject]:
    paths = [directory / file for file in (PREPROCESSOR, PROCESSOR)]
    return {path.name: read_json_object(path) for path in paths if is_there(path)}


def _has_image_processor(files: dict[str, JsonObject]) -> bool:
    preprocessor = files.get(PREPROCESSOR, {})
    # The same file name serves audio models, as a feature extractor.
    is_audio = "feature_extractor_type" in preprocessor
    speaks_of_images = any(
        key.partition(".")[0] in preprocessor
        for key in ("media_proc_cfg", "image_processor_type", *NATIVE_KEYS.values())
    )
    has_file = PREPROCESSOR in files and (speaks_of_images or not is_audio)
    return has_file or files.get(PROCESSOR, {}).get("image_processor") is not None


def _image_parameters(
    directory: Path,
    files: dict[str, JsonObject],
    vision: JsonObject | None,
    architectures: tuple[str, ...],
) -> ImageParameters | None:
    """Read the image parameters; another family's processor is none of ours and gives None."""
    # Other families spell other things with transformers' keys.
    is_ours = not set(architectures).isdisjoint(load_support().built_in())
    blocks = find_blocks(files, directory, native=is_ours)
    if blocks:
        return read_image_parameters(blocks, vision)
    if is_ours:
        looked = " and ".join(files) or f"{PREPROCESSOR} and {PROCESSOR}, of which neither exists"
        message = (
            f"{directory}: no image parameters, neither media_proc_cfg nor the native keys "
            f"({', '.join(NATIVE_KEYS.values())}); looked in {looked}"
        )
        raise PlanError(message)
    return None


def _placeholder(config: JsonObject, path: Path) -> tuple[int | None, tuple[str, ...]]:
    ids = {
        key: _token_id(config, key, path)
        for key in ("media_placeholder_token_id", "image_token_id")
    }
    ours, native = ids.values()
    if ours is None or native is None or ours == native:
        return (native if ours is None else ours), ()
    sentence = (
        f"{CONFIG} says media_placeholder_token_id {ours} and image_token_id {native}: SGLang and "
        "vLLM read the former, native transformers the latter; kimi-serve follows the former"
    )
    return ours, (sentence,)


def _token_id(config: JsonObject, key: str, path: Path) -> int | None:
    value = config.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 31:
        message = (
            f"{path}: {key} must be a token id of 0 or more, not {kind_of(value)} {show(value)}"
        )
        raise PlanError(message)
    return value
