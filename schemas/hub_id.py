"""What the hub takes as the name of a repository."""

from __future__ import annotations

import re

_HUB_ID = re.compile(r"(?=.{1,96}\Z)(?!.*(--|\.\.))\w[\w.-]*(/\w[\w.-]*)?", re.ASCII)


def is_hub_id(text: str) -> bool:
    """Say whether `text` can name a repository, with or without its owner."""
    return _HUB_ID.fullmatch(text) is not None
