"""What somebody wrote down as a secret in clear: what is hidden, less what may be none.

To hide too much costs nothing; what lint calls a secret must be one. So a switch, a number or a
path under the name of a secret is left alone, a user without a password in an address, and what
stands under a name such as `HF_TOKEN_PATH`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from .names import begins_like_flag, is_about_secret
from .shapes import mask
from .trees import secrets_of, secrets_of_items

_NO_SECRET = re.compile(
    r"|\*+|[0-9]{1,5}|true|false|yes|no|on|off|none|null|/.*|~.*", re.IGNORECASE
)
_USER = re.compile(r"://([^/\s:@]*)@")


def literals_of_items(items: Sequence[str]) -> Iterator[set[str]]:
    """Give what is a secret in each item of a command line."""
    flag = ""
    for item, found in zip(items, secrets_of_items(items), strict=True):
        is_option = begins_like_flag(item)
        name, joined, text = item.partition("=") if is_option else (flag, "", item)
        is_about = is_about_secret(name) and (joined or not is_option)
        yield _telling(item, secrets_of(text) if is_about else found)
        flag = name if is_option and not joined else ""


def literals_of_variable(name: str, text: str, *, is_secret: bool = False) -> set[str]:
    """Give what is a secret in a variable; `is_secret` says that the engine declares it so."""
    found = secrets_of(text) if is_about_secret(name) else secrets_of({name: text})
    return _telling(text, found | {text} if is_secret else found)


def _telling(text: str, found: set[str]) -> set[str]:
    users = {user for user in _USER.findall(text) if mask(user) == user}
    return {part for part in found - users if "${" not in part and not _NO_SECRET.fullmatch(part)}
