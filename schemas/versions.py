"""Versions of engines: how people write them, how they are ordered, and what a row of data covers.

People copy the tag of a release (`v0.5.23`) or of an image (`v0.5.23-cu128`), as well as what the
package itself says (`0.5.23+cu128`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

# More digits than any release has are no number: Python refuses to read thousands of them.
_NUMBERS: Final = re.compile(r"[vV]?(?P<numbers>[0-9]{1,9}(?:\.[0-9]{1,9})*)(?![0-9])")
_VERSION: Final = re.compile(r"[vV]?[0-9]{1,9}(?![0-9])[0-9A-Za-z.+_-]*")
_STAGE: Final = re.compile(
    r"[-_.]?(a|b|c|rc|alpha|beta|pre|preview|post|rev|r|dev)[-_.]?([0-9]*)(?![a-z])"
)


def tidied(version: str) -> str:
    """Give a version as the package itself would say it: without blanks around and a leading v.

    Raises ValueError for what begins with no number, such as `latest`.
    """
    text = version.strip()
    if not _VERSION.fullmatch(text):
        raise ValueError(
            f"{version[:80]!r} is no version: write the number of a release, such as 0.5.23, or "
            "leave it out"
        )
    return text.lstrip("vV")


def version_key(version: str) -> tuple[int, ...]:
    """Order versions by their leading numbers: "0.5.23rc1" sorts as (0, 5, 23), 0.33 as 0.33.0.

    Nothing for what begins with no number.
    """
    found = _NUMBERS.match(version.strip())
    numbers = [int(part) for part in found["numbers"].split(".")] if found else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def is_same_release(version: str, other: str) -> bool:
    """Say whether two versions are builds of one release: `0.5.23+cu128`, `0.5.23-cu130`."""
    return _release(version) == _release(other)


def _release(version: str) -> tuple[tuple[int, ...], tuple[tuple[str, str], ...]]:
    """Give the numbers and the stages (`rc1`, `post1`), without what tells a build."""
    text = version.strip().casefold()
    found = _NUMBERS.match(text)
    stages: list[tuple[str, str]] = []
    stage = _STAGE.match(text, found.end()) if found else None
    while stage is not None:
        stages.append((stage[1], stage[2]))
        stage = _STAGE.match(text, stage.end())
    return version_key(text), tuple(stages)


@dataclass(frozen=True, slots=True)
class VersionRange:
    """Releases of one engine: `since` is inclusive, `until` exclusive, "" is open."""

    engine: str
    since: str
    until: str

    def covers(self, engine: str, version: str) -> bool:
        """Say whether a release lies in the range."""
        key = version_key(version)
        return (
            engine == self.engine
            and (not self.since or key >= version_key(self.since))
            and (not self.until or key < version_key(self.until))
        )
