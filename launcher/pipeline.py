"""From what the user wrote to the plan: the one walk that every command takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from kimi_serve.preprocess.checkpoint_files.checkpoint import locate_checkpoint, read_checkpoint
from kimi_serve.schemas.checkpoint import CheckpointFacts
from kimi_serve.schemas.plan import LaunchPlan, LoadedSettings
from kimi_serve.schemas.settings import ModelSettings
from kimi_serve.schemas.support import load_support

from .machine.hardware import probe
from .resolver.resolve import resolve
from .sources.load import load_settings


def load(
    profiles: Sequence[Path],
    flags: Mapping[str, object],
    set_items: Sequence[str],
    env: Mapping[str, str],
) -> LoadedSettings:
    """Read every source; raises ConfigError with all findings at once."""
    return load_settings(profiles, env, flags=flags, set_items=set_items)


def make_plan(loaded: LoadedSettings, env: Mapping[str, str]) -> LaunchPlan:
    """Find the checkpoint, look at the machine, resolve."""
    checkpoint = find_checkpoint(loaded.settings.model, env)
    return resolve(loaded, checkpoint, probe(env), load_support())


def find_checkpoint(model: ModelSettings, env: Mapping[str, str]) -> CheckpointFacts:
    """Locate and read the checkpoint that the settings name."""
    located = locate_checkpoint(model.path, model.revision, env=env, offline=False)
    tokenizer = (
        locate_checkpoint(model.tokenizer_path, None, env=env, offline=False).directory
        if model.tokenizer_path
        else None
    )
    return read_checkpoint(
        located.directory,
        origin=located.origin,
        name=located.name,
        tokenizer_directory=tokenizer,
    )
