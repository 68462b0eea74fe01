"""Finds the directory of a checkpoint: the bundled demo, a local directory, or a hub id.

Reads no file of the checkpoint; the network is touched only through `hub`.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kimi_serve.schemas.checkpoint import CheckpointOrigin
from kimi_serve.schemas.errors import ConfigError, PlanError
from kimi_serve.schemas.hub_id import is_hub_id

from .hub_cache import (
    cache_directory,
    cached_revisions,
    expand_home,
    find_snapshot,
    offline_variable,
)

logger = logging.getLogger(__name__)

BUNDLED = Path(__file__).parents[1] / "demo_checkpoint"
BUNDLED_NAME = "kimi-k2.5-demo"
MOST_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Located:
    """A checkpoint's directory, how it was found, and the name it goes by."""

    directory: Path
    origin: CheckpointOrigin
    name: str


def locate_checkpoint(path: str | None, revision: str | None, *, env: Mapping[str, str]) -> Located:
    """Find the checkpoint that `path` means; None is the bundled demo.

    A directory that exists wins over a hub id of the same spelling. HF_HUB_OFFLINE in `env`
    forbids downloads.
    """
    if path is None:
        return Located(BUNDLED, "bundled", BUNDLED_NAME)
    if not path.strip():
        message = "the checkpoint path is empty; give a directory or a hub id"
        raise ConfigError(message)
    local = expand_home(path, env).absolute()
    kind = _kind(local, path)
    if kind == "directory":
        return Located(local, "directory", local.resolve().name)
    if kind == "file":
        message = f"{path!r} is a file; a checkpoint is a directory with config.json in it"
        raise ConfigError(message, hint=f"its directory is {local.parent}")
    if path.startswith(("/", "./", "../", "~")) or path in (".", ".."):
        raise _no_such_directory(path, local)
    if not is_hub_id(path):
        raise _no_such_directory(path, local, "is neither a directory here nor a hub id (org/name)")
    return _from_hub(path, revision, env)


def _kind(local: Path, path: str) -> str:
    try:
        if local.is_dir():
            return "directory"
        return "file" if local.exists() else "nothing"
    except (OSError, ValueError) as error:  # no permission, name too long, a NUL byte
        message = f"cannot look at {path!r}: {getattr(error, 'strerror', None) or error}"
        raise ConfigError(message) from error


def _no_such_directory(path: str, local: Path, problem: str = "does not exist") -> ConfigError:
    beside, hint = _neighbours(local)
    return ConfigError(f"checkpoint {path!r} {problem}; {beside}", hint=hint)


def _neighbours(local: Path) -> tuple[str, str | None]:
    """Say what directories stand where `local` should, and which of them may be meant."""
    parent = next((above for above in local.parents if above.is_dir()), Path("/"))
    names = _directories(parent)
    shown = ", ".join(names[:MOST_SHOWN]) + (", ..." if len(names) > MOST_SHOWN else "")
    beside = f"{parent} has {shown or 'no directories'}"
    missing = local.relative_to(parent).parts
    near = difflib.get_close_matches(missing[0], names, n=1, cutoff=0.5) if missing else []
    hint = f"did you mean {parent.joinpath(near[0], *missing[1:])}?" if near else None
    return beside, hint


def _directories(parent: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in parent.iterdir() if _is_shown(entry))
    except OSError:
        return []


def _is_shown(entry: Path) -> bool:
    return not entry.name.startswith(".") and entry.is_dir()


def _from_hub(repo_id: str, revision: str | None, env: Mapping[str, str]) -> Located:
    cache = cache_directory(env)
    snapshot = find_snapshot(cache, repo_id, revision)
    missing = _missing_files(snapshot)
    variable = offline_variable(env)
    if snapshot is None or missing:
        if variable is None:
            snapshot = _download(repo_id, revision, env, cache, snapshot)
        elif snapshot is None or len(missing) > 1:
            raise _not_cached(repo_id, revision, cache, variable)
    return Located(snapshot, "hub-cache", repo_id)


def _missing_files(snapshot: Path | None) -> list[str]:
    if snapshot is None:
        return []
    groups = (("config.json",), ("tokenizer.json", "tiktoken.model"))
    return [
        " or ".join(names)
        for names in groups
        if not any((snapshot / name).is_file() for name in names)
    ]


def _download(
    repo_id: str, revision: str | None, env: Mapping[str, str], cache: Path, partial: Path | None
) -> Path:
    # The client is heavy, and a checkpoint that is on disk never needs it.
    from .hub import download_snapshot

    try:
        return download_snapshot(repo_id, revision, env=env, cache=cache)
    except PlanError as error:
        if partial is None or len(_missing_files(partial)) > 1:
            raise
        logger.warning("using the incomplete snapshot %s: %s", partial, error.message)
        return partial


def _not_cached(repo_id: str, revision: str | None, cache: Path, variable: str) -> PlanError:
    wanted = f"{repo_id} at revision {revision}" if revision else repo_id
    have = cached_revisions(cache, repo_id)
    others = f" (it has revisions {', '.join(have[:MOST_SHOWN])})" if have else ""
    asked = f" --revision {revision}" if revision else ""
    message = (
        f"{wanted} is neither a directory here nor complete in the hub cache {cache}{others}, and "
        f"{variable} is set, so nothing is downloaded"
    )
    hint = (
        f"on a machine with network: hf download {repo_id}{asked} --include '*.json' '*.jinja' "
        f"'tiktoken.model'; or unset {variable}; or give a directory"
    )
    local = Path(repo_id).absolute()
    if "/" in repo_id and local.parent.is_dir():  # a relative path looks like a hub id
        beside, near = _neighbours(local)
        message += f"; {beside}"
        hint = f"{near} Or {hint}" if near else hint
    return PlanError(message, hint=hint)
