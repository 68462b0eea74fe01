"""What was read of a checkpoint's files, and where each fact stood."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .vocabulary import TokenizerKind
from .worker import ResizeConfig

CheckpointOrigin = Literal["bundled", "directory", "hub-cache"]


@dataclass(frozen=True, slots=True)
class CheckpointFacts:
    """A checkpoint directory as far as the launcher must know it.

    `architectures` is config.json's list; `resize` is None for a checkpoint without an image
    processor. `resize_source` names file and block the parameters came from, such as
    "preprocessor_config.json media_proc_cfg". `disagreements` are sentences about blocks that
    contradict each other. `placeholder_id` is config.json's media placeholder.
    """

    directory: str
    origin: CheckpointOrigin
    name: str
    architectures: tuple[str, ...]
    model_type: str
    placeholder_id: int | None
    resize: ResizeConfig | None
    resize_source: str
    disagreements: tuple[str, ...]
    tokenizer_directory: str
    tokenizer_kind: TokenizerKind | None
    has_vision: bool
    has_chat_template: bool = True
