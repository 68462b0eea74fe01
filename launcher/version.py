"""Which release of this distribution, and of others, is installed."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

VERSION = version("kimi-serve")


def installed_version(name: str) -> str | None:
    """Give the version of a distribution, None where it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None
