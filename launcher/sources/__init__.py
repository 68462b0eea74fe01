"""Turns profiles, variables and flags into `Settings`, with the origin of every value."""
