"""Starts an engine, watches it, passes its output on, and ends it whole."""
