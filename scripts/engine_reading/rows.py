"""The rows of a table, as both engines' readers build them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

Row = dict[str, Any]


class Computed:
    """Stands for a value that only the running engine knows."""

    def __repr__(self) -> str:
        return "computed"


COMPUTED = Computed()

_TYPES = {
    "int": "int",
    "float": "float",
    "str": "str",
    "bool": "bool",
    "json.loads": "json",
    "json_list_type": "json",
    "parse_type(json.loads)": "json",
    "optional_type(json.loads)": "json",
    "optional_type(str)": "str",
    "union_dict_and_str": "json-or-str",
    "human_readable_int": "human-int",
    "human_readable_int_or_auto": "human-int",
}
# Help that is about the flag's own end, not about the end of something else.
_DEPRECATED = re.compile(r"(?i)^\W*(?:deprecated\b|[\w-]+ (?:\([\w-]+\) )?is deprecated\b)")
# What a note about a deprecation names: a flag, perhaps with one value, or a variable.
_REPLACEMENT = re.compile(
    r"--[a-z](?:[\w.-]*\w)?(?:\{[\w,]+\})?(?: <[\w-]+>|[= ](?!instead|when|to|or)[a-z]\w*)?"
    r"|\b(?:SGLANG|VLLM)_[A-Z0-9_]+(?:=\d+)?"
)
LEAVE_OUT = "nothing: leave it out"


@dataclass(frozen=True)
class Flag:
    """One action of an argparse parser, whichever way the engine declares it."""

    names: Sequence[str]
    field: str
    type: str = "str"
    action: str = "store"
    nargs: object = None
    choices: object = None
    default: object = None
    required: bool = False
    help: str = ""

    def row(self, deprecated: str | None = None, *, paired: bool = False) -> Row:
        """Give the row, without the keys that say nothing.

        `deprecated` is what to write instead, None to take it from the help. `paired` is vLLM's
        habit to take --disable-x as the negative of --enable-x.
        """
        row: Row = {"flag": canonical(self.names), "field": self.field, "type": self.type}
        row["action"] = self.action
        aliases = [name for name in self.names if name != row["flag"]]
        if aliases:
            row["aliases"] = aliases
        if self.action == "boolean":
            row["negatives"] = negatives(self.names, paired=paired)
        if self.nargs is not None:
            row["nargs"] = self.nargs
        if self.choices is not None and self.choices is not COMPUTED:
            row["choices"] = self.choices
        row |= {"required": True} if self.required else default_of(self.default)
        note = deprecation(self.help, self.names) if deprecated is None else deprecated
        if note:
            row["deprecated"] = note
        return row


def negatives(names: Sequence[str], *, paired: bool) -> list[str]:
    """Spell the negative of a switch: --no-x, and --disable-x for --enable-x where engines pair."""
    spelt = [name for name in names if name.startswith("--")]
    pairs = (("--enable-", "--disable-"), ("--disable-", "--enable-")) if paired else ()
    inverse = [
        other + name.removeprefix(prefix)
        for name in spelt
        for prefix, other in pairs
        if name.startswith(prefix)
    ]
    return [*(f"--no-{name[2:]}" for name in spelt), *inverse]


def canonical(names: Sequence[str]) -> str:
    return next((name for name in names if name.startswith("--")), names[0])


def type_name(text: str) -> str:
    """Name how the engine reads a value, "str" for a reader of the engine's own."""
    return _TYPES.get(text, "str")


def default_of(value: object) -> Row:
    if isinstance(value, Computed):
        return {"computed": True}
    if isinstance(value, set | frozenset):
        return {"default": sorted(cast("set[object]", value), key=str)}
    return {"default": value}


def empty(factory: str) -> object:
    """Give what a default factory makes, if it is a plain container."""
    return [] if factory in ("list", "set") else {} if factory == "dict" else COMPUTED


def deprecation(text: str, names: Sequence[str]) -> str:
    """Say what to write instead of a flag that its own help calls deprecated, "" for others."""
    return replacement(text, names) if _DEPRECATED.search(text) else ""


def replacement(note: str, names: Sequence[str]) -> str:
    """Give the first flag or variable in a note that is not the deprecated name itself."""
    for match in _REPLACEMENT.finditer(note):
        found = match[0].rstrip(".'`")
        if re.split(r"[= {]", found)[0] not in names:
            return found
    return LEAVE_OUT
