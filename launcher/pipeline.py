"""From what the user wrote to the plan: the one walk that every command takes."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from kimi_serve.preprocess.checkpoint_files.checkpoint import locate_checkpoint, read_checkpoint
from kimi_serve.schemas.checkpoint import CheckpointFacts
from kimi_serve.schemas.engine_launch import EngineInstall
from kimi_serve.schemas.errors import ConfigError, KimiServeError, PlanError
from kimi_serve.schemas.plan import LaunchPlan, LoadedSettings
from kimi_serve.schemas.support import load_support

from .machine.engine_install import find_install
from .machine.hardware import probe
from .resolver.resolve import resolve
from .secrets.findings import without_secrets
from .secrets.given import secrets_of_settings, secrets_of_text, secrets_outside
from .secrets.known import Known
from .sources.files import read_file
from .sources.load import load_settings
from .sources.profile import read_profiles
from .sources.yaml_tree import MAX_BYTES


def load(
    profiles: Sequence[Path],
    flags: Mapping[str, object],
    set_items: Sequence[str],
    env: Mapping[str, str],
) -> LoadedSettings:
    """Read every source; raises ConfigError with all findings at once."""
    try:
        return load_settings(profiles, env, flags=flags, set_items=set_items)
    except ConfigError as error:
        names = [layer.name for layer in read_profiles(profiles, env)]
        known = secrets_outside(env, flags, set_items) | Known(_secrets_in(names, env))
        raise without_secrets(error, known) from None


def _secrets_in(names: Iterable[str], env: Mapping[str, str]) -> Iterator[str]:
    """Read the files of a failed load again, for the secrets in what could not be taken."""
    for name in names:
        with contextlib.suppress(OSError, ValueError):
            data = read_file(name, MAX_BYTES, is_named=True)
            yield from secrets_of_text(data.decode("utf-8", "replace").removeprefix("\ufeff"), env)


def make_plan(loaded: LoadedSettings, env: Mapping[str, str]) -> LaunchPlan:
    """Find the checkpoint, look at the machine, resolve."""
    try:
        checkpoint, machine = find_checkpoint(loaded, env), probe(env)
        return resolve(loaded, checkpoint, machine, load_support(), env, _install(loaded, env))
    except KimiServeError as error:
        raise without_secrets(error, secrets_of_settings(loaded)) from None


def _install(loaded: LoadedSettings, env: Mapping[str, str]) -> EngineInstall | None:
    """Ask the interpreter that would run the engine."""
    engine = loaded.settings.engine
    return None if engine.kind == "none" else find_install(engine.python, engine.kind, env)


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
