"""Downloads the small files of a checkpoint from the hub: the only module that imports its client.

Never downloads weights or code, and never waits without end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from kimi_serve.schemas.errors import PlanError

from .hub_cache import ref_path

FILES = (
    "config.json",
    "generation_config.json",
    "preprocessor_config.json",
    "processor_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "tiktoken.model",
    "chat_template.jinja",
)
REQUEST_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 12.0  # also covers a name server that never answers
DOWNLOAD_TIMEOUT_S = 300.0

Result = TypeVar("Result")


def download_snapshot(
    repo_id: str, revision: str | None, *, env: Mapping[str, str], cache: Path
) -> Path:
    """Download `FILES` of a repository into the cache and give the snapshot's directory."""
    from huggingface_hub import HfApi
    from huggingface_hub.utils.tqdm import disable_progress_bars

    disable_progress_bars()
    api = HfApi(endpoint=env.get("HF_ENDPOINT") or None, token=env.get("HF_TOKEN") or None)
    host = urlsplit(api.endpoint).hostname or api.endpoint

    def ask() -> str | None:
        return api.model_info(repo_id, revision=revision, timeout=REQUEST_TIMEOUT_S).sha

    # One plain question first: the download itself would retry an unreachable hub for long.
    commit = _bounded(ask, ANSWER_TIMEOUT_S, repo_id, host)

    def download() -> Path:
        directory = api.snapshot_download(  # pyright: ignore[reportUnknownMemberType] - of tqdm
            repo_id,
            revision=commit or revision,
            cache_dir=cache,
            allow_patterns=list(FILES),
            etag_timeout=REQUEST_TIMEOUT_S,
        )
        _remember(Path(directory), revision)
        return Path(directory)

    return _bounded(download, DOWNLOAD_TIMEOUT_S, repo_id, host)


def _remember(snapshot: Path, revision: str | None) -> None:
    """Write the ref of a branch that was downloaded by its commit, as the client does for names."""
    name = revision or "main"
    ref = ref_path(snapshot.parents[1], name)
    if ref is not None and name != snapshot.name:
        ref.parent.mkdir(parents=True, exist_ok=True)
        ref.write_text(snapshot.name, encoding="utf-8")


def _bounded(call: Callable[[], Result], seconds: float, repo_id: str, host: str) -> Result:
    """Run `call` in a thread of its own and give up after `seconds`."""
    results: list[Result] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            results.append(call())
        except Exception as error:  # noqa: BLE001 - border of a foreign client: all of it is told
            errors.append(error)

    thread = threading.Thread(target=run, name="kimi-serve-hub", daemon=True)
    thread.start()
    thread.join(seconds)
    if results:
        return results[0]
    hint = "give a directory, or fetch the files with: hf download " + repo_id
    if not errors:
        message = f"{repo_id} is not on this machine, and {host} did not answer in {seconds:.0f} s"
        raise PlanError(message, hint=hint)
    message = f"{repo_id} is not on this machine, and {_explain(errors[0], host)}"
    raise PlanError(message, hint=hint) from errors[0]


def _explain(error: Exception, host: str) -> str:
    """Put an error of the client into plain words, without addresses and tokens."""
    from huggingface_hub.errors import (
        GatedRepoError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    if isinstance(error, GatedRepoError):
        return f"{host} gives it only to accounts that were granted access (set HF_TOKEN)"
    if isinstance(error, RevisionNotFoundError):
        return f"{host} has no such revision of it"
    if isinstance(error, RepositoryNotFoundError):
        return f"{host} has no such repository, or hides it from this account (set HF_TOKEN)"
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status is not None:
        return f"{host} answered with HTTP status {status}"
    words = str(error).strip().partition("\n")[0][:160]
    return f"{host} cannot be reached ({words or type(error).__name__})"
