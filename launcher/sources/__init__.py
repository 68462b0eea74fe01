"""Turns profiles, variables and flags into `Settings`, with the origin of every value."""

from __future__ import annotations

from .environment import read_environment
from .flags import check_argv, read_flags
from .layers import Layer, Leaf
from .load import Layers, load_settings, merge, read_layers
from .profile import read_profile, read_profile_text

__all__ = [
    "Layer",
    "Layers",
    "Leaf",
    "check_argv",
    "load_settings",
    "merge",
    "read_environment",
    "read_flags",
    "read_layers",
    "read_profile",
    "read_profile_text",
]
