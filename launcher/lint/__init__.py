"""Lint: profiles in, findings out, in every format; hermetic unless the user opts out."""
