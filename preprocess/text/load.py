"""Loads the tokenizer that a spec names, and checks the media placeholder that it brings."""

from __future__ import annotations

from pathlib import Path

from kimi_serve.schemas.errors import PlanError
from kimi_serve.schemas.worker import TokenizerSpec

from .tokenizer import PLACEHOLDER, Tokenizer

UNKNOWN = "[UNK]"


def load_tokenizer(spec: TokenizerSpec) -> Tokenizer:
    """Load the tokenizer of `spec` and check the media placeholder against config.json's."""
    directory = Path(spec.directory)
    tokenizer: Tokenizer
    # A worker needs one of the two libraries, never both.
    if spec.kind == "tokenizer.json":
        from .fast_tokenizer import load_fast_tokenizer

        tokenizer = load_fast_tokenizer(directory / spec.kind)
    else:
        from .rank_tokenizer import load_rank_tokenizer

        tokenizer = load_rank_tokenizer(directory / spec.kind)
    _check_placeholder(tokenizer, spec.placeholder_id, directory / spec.kind)
    return tokenizer


def _check_placeholder(tokenizer: Tokenizer, expected: int | None, path: Path) -> None:
    """Refuse a tokenizer whose media placeholder is not the one that the model was built for."""
    special_ids = tokenizer.special_ids
    wanted = "names none" if expected is None else f"says {expected}"
    names = [name for name, number in special_ids.items() if number == expected]
    called = f", which the tokenizer calls {names[0]}" if names else ""
    hint = f"the tokenizer must give {PLACEHOLDER} the id that config.json names as its placeholder"
    if PLACEHOLDER not in special_ids:
        message = f"{path} has no added token {PLACEHOLDER}; config.json {wanted}{called}"
        raise PlanError(message, hint=hint)
    found = special_ids[PLACEHOLDER]
    if found in (tokenizer.unknown_id, special_ids.get(UNKNOWN)):
        message = (
            f"{path} gives {PLACEHOLDER} the id {found} of the unknown token; config.json {wanted}"
        )
        raise PlanError(message, hint=hint)
    if expected is not None and found != expected:
        message = f"{path} gives {PLACEHOLDER} the id {found}; config.json {wanted}{called}"
        raise PlanError(message, hint=hint)
