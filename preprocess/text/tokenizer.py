"""Text to ids, with a wall between what is typed and the special tokens.

`Tokenizer` is what the prompt builder needs; `fast_tokenizer` and `rank_tokenizer` make one from
the two kinds of file that checkpoints have.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from types import MappingProxyType

from kimi_serve.schemas.errors import PlanError, RequestError
from kimi_serve.schemas.worker import TokenizerSpec

PLACEHOLDER = "<|media_pad|>"
UNKNOWN = "[UNK]"


class Tokenizer(ABC):
    """A loaded tokenizer.

    `special_ids` has every added token, also those that the checkpoint does not call special
    (<think>, <|tool_call_begin|>). `unknown_id` is what characters without a token become.
    """

    def __init__(self, special_ids: Mapping[str, int], unknown_id: int | None = None) -> None:
        self.special_ids: Mapping[str, int] = MappingProxyType(dict(special_ids))
        self.unknown_id = unknown_id
        self._barred = frozenset(special_ids.values()) - {unknown_id}
        longest_first = sorted(special_ids, key=len, reverse=True)
        self.special_pattern = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")

    @property
    def placeholder_id(self) -> int:
        """The id that one image's features replace."""
        return self.special_ids[PLACEHOLDER]

    @cached_property
    def special_prefixes(self) -> frozenset[str]:
        """All that a special token may begin with, short of the whole token."""
        return frozenset(text[:end] for text in self.special_ids for end in range(1, len(text)))

    def encode_text(self, text: str) -> list[int]:
        """Encode typed text: no spelling of a special token gives its id."""
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            message = (
                f"text holds a lone surrogate U+{ord(text[error.start]):04X}, which is no character"
            )
            raise RequestError(message) from error
        ids = self._encode(text) if text else []
        if not self._barred.isdisjoint(ids):
            names = [name for name, number in self.special_ids.items() if number in set(ids)]
            message = f"text would become the special token {', '.join(names)}"
            raise RequestError(message)
        return ids

    @abstractmethod
    def _encode(self, text: str) -> list[int]:
        """Encode text that is not empty and has no lone surrogate."""


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
