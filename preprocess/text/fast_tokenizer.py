"""`tokenizer.json` through the tokenizers library.

The file is loaded twice: once whole, to learn the ids that the added tokens really get, and once
without them, to encode text in which they cannot match.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import tokenizers

from kimi_serve.schemas.errors import PlanError

from ..checkpoint_files.json_files import (
    JsonObject,
    as_list,
    as_object,
    object_at,
    read_json_object,
    show,
)
from .tokenizer import PLACEHOLDER, Tokenizer

NEVER_ON_TEXT: JsonObject = {
    "added_tokens": [],
    "post_processor": None,
    "truncation": None,
    "padding": None,
}
SWALLOWING = ("single_word", "lstrip", "rstrip")


class FastTokenizer(Tokenizer):
    """Encodes with a tokenizer that knows no added token."""

    def __init__(
        self, ordinary: tokenizers.Tokenizer, special_ids: Mapping[str, int], unknown_id: int | None
    ) -> None:
        super().__init__(special_ids, unknown_id)
        self._ordinary = ordinary

    def _encode(self, text: str) -> list[int]:
        return self._ordinary.encode(text, add_special_tokens=False).ids


def load_fast_tokenizer(path: Path) -> FastTokenizer:
    """Load a tokenizer.json; ids that differ from the file's own are an error."""
    document = read_json_object(path)
    declared = _declared_tokens(document, path)
    whole = _build(document, path)
    # The placeholder first: its error is the one that explains a wrong answer of the model.
    for text, number in sorted(declared.items(), key=lambda item: item[0] != PLACEHOLDER):
        given = whole.token_to_id(text)
        if given != number:
            message = (
                f"{path} declares {text} as id {number}, but loading it gives {given}: added "
                "tokens that are not in model.vocab are numbered without gaps"
            )
            raise PlanError(message, hint="put the added tokens into model.vocab with their ids")
    model = object_at(document, "model", path) or {}
    unknown = model.get("unk_token")
    unknown_id = whole.token_to_id(unknown) if isinstance(unknown, str) else None
    kept = {unknown} if isinstance(unknown, str) else set[str]()
    bare = document | NEVER_ON_TEXT | {"model": _without(model, declared.keys() - kept)}
    return FastTokenizer(_build(bare, path), declared, unknown_id)


def _declared_tokens(document: JsonObject, path: Path) -> dict[str, int]:
    declared: dict[str, int] = {}
    for entry in as_list(document.get("added_tokens")) or []:
        token = as_object(entry) or {}
        text, number = token.get("content"), token.get("id")
        if not (isinstance(text, str) and text and type(number) is int and number >= 0):
            message = (
                f"{path}: added_tokens: {show(entry)} needs a content text and an id of 0 or more"
            )
            raise PlanError(message)
        if declared.setdefault(text, number) != number:
            message = f"{path}: added_tokens: {text} has two ids, {declared[text]} and {number}"
            raise PlanError(message)
        for option in SWALLOWING:
            if token.get(option):
                message = f"{path}: added_tokens: {text} sets {option}, which is not supported"
                raise PlanError(message)
    return declared


def _without(model: JsonObject, texts: set[str]) -> JsonObject:
    """Take tokens out of a model's vocabulary, with the merges that would make or use them."""
    vocab, merges = as_object(model.get("vocab")), as_list(model.get("merges"))
    bare = dict(model)
    if vocab is not None:
        bare["vocab"] = {token: number for token, number in vocab.items() if token not in texts}
    if merges is not None:
        bare["merges"] = [rule for rule in merges if texts.isdisjoint(_tokens_of(rule))]
    return bare


def _tokens_of(rule: object) -> tuple[str, ...]:
    """Name both parts of a merge rule, which is "a b" or ["a", "b"], and what it makes."""
    parts = rule.split(" ") if isinstance(rule, str) else cast("list[str]", rule)
    return (*parts, "".join(parts))


def _build(document: Mapping[str, object], path: Path) -> tokenizers.Tokenizer:
    try:
        return tokenizers.Tokenizer.from_str(json.dumps(document))
    except Exception as error:  # the library raises bare Exception for every fault of a file
        message = f"{path} is not a usable tokenizer: {error}"
        raise PlanError(message) from error
