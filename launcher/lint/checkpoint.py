"""What lint reads of a checkpoint: a directory beside the profile, as far as it is there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, cast

from kimi_serve.schemas.errors import KimiServeError

if TYPE_CHECKING:
    from kimi_serve.preprocess.checkpoint_files.json_files import JsonObject
    from kimi_serve.schemas.checkpoint import CheckpointFacts


def checkpoint_beside(path: str | None) -> CheckpointFacts | None:
    """Read the directory that `model.path` names; None where there is none to read."""
    if not path or not os.path.isdir(path):
        return None
    # Most profiles that CI sees name no directory that is there.
    from kimi_serve.preprocess.checkpoint_files.checkpoint import read_checkpoint
    from kimi_serve.preprocess.checkpoint_files.json_files import read_json_object

    directory = Path(path)
    try:
        return read_checkpoint(directory, origin="directory", name=directory.name)
    except KimiServeError:
        pass  # a deployment repository may hold config.json alone
    try:
        return _from_config(directory, read_json_object(directory / "config.json"))
    except KimiServeError:
        return None


def _from_config(directory: Path, config: JsonObject) -> CheckpointFacts | None:
    from kimi_serve.schemas.checkpoint import CheckpointFacts

    names = config.get("architectures")
    if not isinstance(names, list):
        return None
    model_type = config.get("model_type")
    placeholder = config.get("media_placeholder_token_id")
    return CheckpointFacts(
        directory=str(directory),
        origin="directory",
        name=directory.name,
        architectures=tuple(
            name for name in cast("list[object]", names) if isinstance(name, str) and name
        ),
        model_type=model_type if isinstance(model_type, str) else "",
        placeholder_id=placeholder if isinstance(placeholder, int) else None,
        resize=None,
        resize_source="",
        disagreements=(),
        tokenizer_directory=str(directory),
        tokenizer_kind=None,
        has_vision=bool(config.get("vision_config")),
    )
