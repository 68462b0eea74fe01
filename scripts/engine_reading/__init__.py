"""Reads what an engine's package says about its flags and its environment, without importing it."""
