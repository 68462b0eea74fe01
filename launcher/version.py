"""The installed version of this distribution."""

from __future__ import annotations

from importlib.metadata import version

VERSION = version("kimi-serve")
