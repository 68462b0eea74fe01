"""The on-ramp: an engine's command, as people have it, becomes a profile."""
