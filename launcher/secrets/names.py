"""What the name of a secret looks like: keys of a table, variables, flags, words of a comment."""

from __future__ import annotations

import re
from typing import Final

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_ALWAYS = frozenset(
    (
        *("apikey", "apitoken", "secret", "secrets", "password", "passwords", "passwd"),
        *("passphrase", "credential", "credentials", "auth", "authorization"),
        *("authtoken", "hftoken", "accesskey", "secretkey"),
    )
)
# Long enough to be told at the end of another word: PGPASSWORD.
_ENDS = ("password", "passwd", "passphrase", "apikey")
# In the vocabulary of models these words are mostly no secrets: `--kt-...-per-token`,
# `SGLANG_LOG_DECODE_GRAPH_KEY`, `--enable-forward-pass-metrics`. The neighbours tell.
_BEFORE: dict[str, tuple[str, ...]] = {
    "token": (
        *("per", "next", "new", "first", "inter", "to", "req", "verify", "num", "max", "min"),
        *("bos", "eos", "pad", "unk", "sep", "cls", "mask", "stop", "special", "placeholder"),
        *("image", "video", "audio", "media", "start", "end", "begin"),
    ),
    "key": ("routing", "graph", "public", "cache", "sort", "primary", "partition", "shard"),
    "pass": ("forward", "backward", "single", "multi"),
    "pwd": (),
}
_AFTER: dict[str, tuple[str, ...]] = {
    "token": (
        *("id", "ids", "count", "counts", "limit", "budget", "usage", "ratio", "threshold"),
        *("latency", "map", "distribution", "activation", "oracle", "assert", "swap", "prob"),
        *("block", "mode", "type"),
    ),
    "key": (),
    "pass": ("through",),
    "pwd": (),
}
WORDS: Final = _ALWAYS | frozenset(_BEFORE)
"""What names of secrets are made of; no secrets themselves."""

_DASHES = re.compile("[\u2010-\u2015\u2043\u2212\ufe58\ufe63\uff0d]")
# Options of the engines that take a secret; argparse takes any beginning for the whole, but what
# is an option itself is no beginning.
_SECRET_FLAGS = ("api-key", "admin-api-key", "hf-token", "ssl-keyfile-password")
_OTHER_FLAGS = ("ssl-keyfile",)
_NEXT_FLAG = re.compile(r"(--[a-z]+(-[a-z]+)*|-[a-z]{1,3})(=.*)?", re.DOTALL)


def is_secret_name(name: str) -> bool:
    """Say whether a key, variable or flag of this name, or a text with such a word, is secret."""
    words = [word.lower() for word in _WORD.findall(name)]
    return any(_is_secret_word(words, index) for index in range(len(words)))


def _is_secret_word(words: list[str], index: int) -> bool:
    word = words[index]
    before = words[index - 1] if index else ""
    after = words[index + 1] if index + 1 < len(words) else ""
    if (before == "api" and word.startswith("ke")) or word.startswith("apike"):
        return True  # also mistyped
    if word in _ALWAYS or word.endswith(_ENDS):
        return not (word == "credentials" and before == "allow")
    if word == "pwd":
        return bool(before)  # PWD itself is the working directory
    return word in _BEFORE and before not in _BEFORE[word] and after not in _AFTER[word]


# What lies behind the name of a secret and is none: where it is kept, and of which kind it is.
_ABOUT = frozenset(
    (
        *("file", "files", "path", "dir", "directory", "url", "uri", "endpoint", "env", "name"),
        *("type", "mode", "method", "enabled", "disabled", "ttl", "timeout"),
        *("provider", "backend", "store", "manager"),
    )
)


def is_about_secret(name: str) -> bool:
    """Say whether something of this name only says where a secret is, or what kind of one."""
    words = _WORD.findall(name)
    return bool(words) and words[-1].lower() in _ABOUT


# Texts, not patterns: hardly any profile needs them, and to compile one takes its time.
_REFERRED = r"\$?\{?\$?(?P<name>[A-Za-z_][A-Za-z0-9_]*)\}?|%(?P<dos>[A-Za-z_][A-Za-z0-9_]*)%"
_LIKE_A_NAME = r"[A-Z][A-Z0-9]*([-. ][A-Z0-9]+)*"


def meant_variable(text: str) -> str:
    """Give the variable that was meant by `$NAME`, `${NAME}` or `MY-KEY`, "" for none.

    Only what is surely a name: anything else may be the secret itself.
    """
    match = re.fullmatch(_REFERRED, text.strip())
    name = (match["name"] or match["dos"]) if match else ""
    if name:
        return name if name != text and name.isupper() else ""
    word = re.sub(r"[-. ]", "_", text.strip())
    return word if re.fullmatch(_LIKE_A_NAME, text.strip()) and is_secret_name(word) else ""


def begins_like_flag(text: str) -> bool:
    """Say whether a text is an option, also with the dashes that word processors make."""
    return fold_dashes(text).startswith("-")


def is_next_flag(text: str) -> bool:
    """Say whether what stands where a value should is an option: argparse takes it for one."""
    return _NEXT_FLAG.fullmatch(text) is not None


def is_secret_flag(text: str) -> bool:
    """Say whether an option takes a secret: by its name, or abbreviated as engines allow."""
    flag = fold_dashes(text).lower().replace("_", "-")
    name = flag.lstrip("-")
    if not flag.startswith("-") or name in _OTHER_FLAGS:
        return False
    is_short_for = len(name) > 1 and any(full.startswith(name) for full in _SECRET_FLAGS)
    return is_short_for or is_secret_name(name)


def takes_several(flag: str) -> bool:
    """Say whether an option takes all that follows, up to the next one: vLLM has several keys."""
    name = fold_dashes(flag).lower().replace("_", "-").lstrip("-")
    return len(name) > 1 and "api-key".startswith(name)


def fold_dashes(text: str) -> str:
    """Write every dash look-alike as "-"."""
    return _DASHES.sub("-", text)
