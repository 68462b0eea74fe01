"""The loader of PyYAML that all readers use: the fast one where it was built."""

from __future__ import annotations

from typing import Any, Final

import yaml

LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
