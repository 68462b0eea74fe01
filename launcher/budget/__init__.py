"""What a launch takes of its GPUs: the arithmetic, pure, and the sentences about it."""
