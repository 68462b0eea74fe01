"""Numbers in sentences."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """Give a number with its noun, in the plural where that is right."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
