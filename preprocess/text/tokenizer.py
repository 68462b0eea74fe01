"""Text to ids, with a wall between what is typed and the special tokens.

`Tokenizer` is what the prompt builder needs; `fast_tokenizer` and `rank_tokenizer` make one from
the two kinds of file that checkpoints have, and `load` chooses.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType

from kimi_serve.schemas.errors import RequestError

PLACEHOLDER = "<|media_pad|>"


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
