"""From what the user wrote to the plan: the one walk that every command takes."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path

from kimi_serve.preprocess.checkpoint_files.checkpoint import locate_checkpoint, read_checkpoint
from kimi_serve.schemas.checkpoint import CheckpointFacts
from kimi_serve.schemas.errors import ConfigError, PlanError
from kimi_serve.schemas.plan import LaunchPlan, LoadedSettings
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
    return resolve(loaded, find_checkpoint(loaded, env), probe(env), load_support(), env)


def find_checkpoint(loaded: LoadedSettings, env: Mapping[str, str]) -> CheckpointFacts:
    """Locate and read the checkpoint that the settings name."""
    model = loaded.settings.model
    with _setting("model.path", loaded):
        located = locate_checkpoint(model.path, model.revision, env=env)
    tokenizer = None
    if model.tokenizer_path is not None:
        with _setting("model.tokenizer_path", loaded):
            path = model.tokenizer_path
            tokenizer = locate_checkpoint(path, None, env=env).directory
    return read_checkpoint(
        located.directory,
        origin=located.origin,
        name=located.name,
        tokenizer_directory=tokenizer,
    )


@contextlib.contextmanager
def _setting(path: str, loaded: LoadedSettings) -> Generator[None]:
    """Say in an error which setting it is about, and who set it."""
    try:
        yield
    except (ConfigError, PlanError) as error:
        error.message = f"{path} ({loaded.origin(path)}): {error.message}"
        raise
