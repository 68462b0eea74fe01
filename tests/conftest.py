"""The path of a test gives its marker."""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).parent
FOLDERS = ("unit", "integration", "golden", "interop", "engine", "gpu")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        folder = item.path.relative_to(TESTS).parts[0]
        if folder not in FOLDERS:
            message = f"{item.path} must lie in one of the folders {', '.join(FOLDERS)} of {TESTS}"
            raise pytest.UsageError(message)
        item.add_marker(folder)
