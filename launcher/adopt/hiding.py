"""Keeps secrets out of a profile: each becomes a reference to a variable that is named for it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from kimi_serve.schemas.engine_facts import EngineTable

from ..secrets.known import Known
from ..secrets.names import is_secret_flag, is_secret_name
from ..secrets.shapes import parts_of, secrets_in
from ..secrets.trees import redacted
from .words import reference, references_in

API_KEY_VARIABLE = "KIMI_API_KEY"
# Switches, empty texts and paths: what is named like a secret and is none.
_HARMLESS = re.compile(r"|0|1|true|false|yes|no|on|off|none|null|[/~.].*", re.IGNORECASE)


@dataclass(slots=True)
class Secrets:
    """The secrets that were taken out: `exports` has the value of each variable, never shown."""

    table: EngineTable
    exports: dict[str, str] = field(default_factory=lambda: dict[str, str](), repr=False)
    _known: Known = field(default_factory=Known, repr=False)

    def variable_for(self, name: str, text: str) -> str:
        """Give the variable that holds a secret from now on."""
        made = re.sub(r"\W", "_", name.lstrip("-")).strip("_").upper() or "ENGINE_SECRET"
        made = f"_{made}" if made[0].isdigit() else made
        number = 2
        chosen = made
        while self.exports.get(chosen, text) != text:
            chosen, number = f"{made}_{number}", number + 1
        self.exports[chosen] = text
        self._known |= Known((text, *parts_of(text)))
        return chosen

    def value_of_flag(self, flag: str, text: str) -> bool:
        """Say whether what stands behind a flag is a secret."""
        if _only_references(text):
            return False
        named = is_secret_flag(flag) and _HARMLESS.fullmatch(text) is None
        return named or self._is_shaped(text)

    def value_of_variable(self, name: str, text: str) -> bool:
        """Say whether a variable holds a secret."""
        if _only_references(text):
            return False
        facts = self.table.env(name)
        named = is_secret_name(name) or (facts is not None and facts.secret)
        return (named and _HARMLESS.fullmatch(text) is None) or self._is_shaped(text)

    def is_secret(self, text: str) -> bool:
        """Say whether a word is a secret by itself, or holds one."""
        return not _only_references(text) and self._is_shaped(text)

    def hide(self, text: str) -> str:
        """Cover every secret in what is shown."""
        return self._known.hide(text)

    def _is_shaped(self, text: str) -> bool:
        return bool(secrets_in(text) or self._known.ranges(text)) or redacted([text]) != [text]


def _only_references(text: str) -> bool:
    """Say whether a text holds variables and nothing that looks like a secret beside them."""
    names = references_in(text)
    if not names:
        return False
    for name in names:
        text = text.replace(reference(name), "")
    return not re.search(r"[A-Za-z0-9]{8,}", text)
