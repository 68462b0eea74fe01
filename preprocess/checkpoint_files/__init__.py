"""Finding a checkpoint and reading what the launcher must know of it; standard library only."""
