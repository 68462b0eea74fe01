"""How much at a time."""

from __future__ import annotations

from collections.abc import Callable

FETCHES_AT_ONCE = 64
# One host that is slow leaves room for the others.
FETCHES_AT_ONCE_A_HOST = 16
# And so does one request.
IMAGES_AT_ONCE_A_REQUEST = 8
READS_AT_ONCE = 8
# Name servers that hang keep this many threads at most.
LOOKUPS_AT_ONCE = 16
# The rest of a long answer is not tried: the deadline is one for all.
MOST_ADDRESSES_TRIED = 4

Take = Callable[[int], None]
"""Counts bytes against what a request may hold; raises RequestError when it is too much."""
