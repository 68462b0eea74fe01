"""The HTTP front before the workers."""
