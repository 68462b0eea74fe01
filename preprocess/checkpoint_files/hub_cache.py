"""Reads the local Hugging Face cache by its layout on disk; nothing of the hub client is imported.

The layout is models--ORG--NAME/refs/REVISION, a file that holds a commit, and snapshots/COMMIT.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

TRUE_WORDS = frozenset({"1", "ON", "YES", "TRUE"})  # the hub client's own list
OFFLINE_VARIABLES = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
COMMIT = re.compile(r"[0-9A-Za-z_][0-9A-Za-z_.-]*")


def offline_variable(env: Mapping[str, str]) -> str | None:
    """Name the variable that forbids downloads, None when none does."""
    for name in OFFLINE_VARIABLES:
        if env.get(name, "").upper() in TRUE_WORDS:
            return name
    return None


def cache_directory(env: Mapping[str, str]) -> Path:
    """Say where the hub client keeps its files, by the variables that it reads."""
    for name, below in (
        ("HF_HUB_CACHE", ""),
        ("HUGGINGFACE_HUB_CACHE", ""),
        ("HF_HOME", "hub"),
        ("XDG_CACHE_HOME", "huggingface/hub"),
    ):
        if value := env.get(name):
            return expand_home(value, env) / below
    return expand_home("~/.cache/huggingface/hub", env)


def expand_home(path: str, env: Mapping[str, str]) -> Path:
    """Replace a leading `~` by the home directory that `env` names."""
    home = env.get("HOME")
    if home and (path == "~" or path.startswith("~/")):
        return Path(home) / path[2:]
    try:
        return Path(path).expanduser()
    except RuntimeError:  # ~nobody-known: stays as it is and is not found
        return Path(path)


def find_snapshot(cache: Path, repo_id: str, revision: str | None) -> Path | None:
    """Find the snapshot of `revision` (a branch, a tag or a commit; None is main)."""
    wanted = revision or "main"
    folder = repo_folder(cache, repo_id)
    ref = ref_path(folder, wanted)
    if ref is None:
        return None
    commits = [wanted]
    with suppress(OSError, ValueError):  # no such branch or tag: a commit may still be meant
        commits.insert(0, ref.read_text(encoding="utf-8").strip())
    for commit in commits:
        snapshot = folder / "snapshots" / commit
        if COMMIT.fullmatch(commit) and snapshot.is_dir():
            return snapshot
    return None


def cached_revisions(cache: Path, repo_id: str) -> list[str]:
    """List the branches, tags and commits of a repository that the cache has a snapshot of."""
    folder = repo_folder(cache, repo_id)
    refs = folder / "refs"
    try:
        names = [path.relative_to(refs).as_posix() for path in refs.rglob("*") if path.is_file()]
        names += [path.name for path in (folder / "snapshots").iterdir()]
    except OSError:
        return []
    return [name for name in sorted(names) if find_snapshot(cache, repo_id, name)]


def ref_path(folder: Path, name: str) -> Path | None:
    """Name the file of a branch or tag in the folder of a repository; None for one outside."""
    if ".." in Path(name).parts or Path(name).is_absolute():
        return None
    return folder / "refs" / name


def repo_folder(cache: Path, repo_id: str) -> Path:
    """Name the folder of a repository in the cache."""
    return cache / "--".join(["models", *repo_id.split("/")])
