"""What sounds or looks like a secret: names of keys, tokens of known services, logins in URLs."""

from __future__ import annotations

import re

_NAME = re.compile(
    r"(?:^|[^a-z0-9])(?:api)?(?:key|token|secret|pass|passwd|password|passphrase|credentials?|auth)"
    r"(?=[^a-z0-9]|$)",
    re.IGNORECASE,
)
# `--some-key=VALUE` in one item, `user:password@` in a URL, and tokens known by their start.
_VALUE = re.compile(
    r"(?:^|\s)--[a-z0-9_-]*(?:key|token|secret|password)[ =]\S|://[^/\s]*@"
    r"|(?:^|[^A-Za-z0-9])(?:sk-|hf_|gh[oprsu]_|github_pat_|xox[a-z]-|AKIA)[A-Za-z0-9_-]{8,}",
    re.IGNORECASE,
)
_PIECE = re.compile(
    r"--[a-z0-9_-]*(?:key|token|secret|password)[ =]\s*(?P<value>\S+)|://(?P<login>[^/\s]*)@"
    r"|(?<![A-Za-z0-9])(?:sk-|hf_|gh[oprsu]_|github_pat_|xox[a-z]-|AKIA)[A-Za-z0-9_-]{8,}",
    re.IGNORECASE,
)

_DASHES = re.compile("[\u2010-\u2015\u2212\ufe58\ufe63\uff0d]")
_ASSIGNED = re.compile(r"([\w-]+)[\"']?\s*[=:]\s*\S")
# Options of the engines that take a secret; argparse takes any beginning for the whole.
_SECRET_FLAGS = ("api-key", "admin-api-key", "hf-token", "ssl-keyfile-password")


def is_secret_name(name: str) -> bool:
    """Say whether a key, variable or flag of this name, or a text with such a word, is secret."""
    return bool(_NAME.search(name.replace("_", "-")))


def begins_like_flag(text: str) -> bool:
    """Say whether a text is an option, also with the dashes that word processors make."""
    return fold_dashes(text).startswith("-")


def begins_secret_flag(text: str) -> bool:
    """Say whether an option is, or abbreviates as engines allow, one that takes a secret."""
    flag = fold_dashes(text).lower().replace("_", "-")
    name = flag.lstrip("-")
    return (
        flag.startswith("-")
        and len(name) > 1
        and any(full.startswith(name) for full in _SECRET_FLAGS)
    )


def fold_dashes(text: str) -> str:
    """Write every dash look-alike as "-"."""
    return _DASHES.sub("-", text)


def assigns_secret(value: str) -> bool:
    """Say whether a text holds NAME=VALUE or "name": value with the name of a secret."""
    return any(is_secret_name(match[1]) for match in _ASSIGNED.finditer(value))


def login_in(value: str) -> bool:
    """Say whether a value holds a secret, whatever its name is."""
    return bool(_VALUE.search(value))


def mask(text: str) -> str:
    """Replace what looks like a secret in a free text."""
    return _PIECE.sub(_hide, text)


def _hide(match: re.Match[str]) -> str:
    for name in ("value", "login"):
        if match[name]:
            return match[0].replace(match[name], "***")
    return "***"
