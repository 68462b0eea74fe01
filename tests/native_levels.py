"""The levels of the native kernel that the tests of it run."""

from __future__ import annotations

import os

import pytest

from kimi_serve.preprocess.native.kernel import missing, supported_levels

LEVELS = supported_levels()
IS_REQUIRED = bool(os.environ.get("KIMI_SERVE_REQUIRE_KERNEL"))

needs_kernel = pytest.mark.skipif(
    bool(missing) and not IS_REQUIRED, reason=missing or "the kernel is there"
)
