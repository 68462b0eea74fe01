"""The `verify` command: what this host really does, measured, beside what was promised."""
