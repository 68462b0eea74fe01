"""The native image kernel: C for one image from RGB pixels to patches, and the choice of its path.

The pure path in `..images` stays the specification: a self-test compares both before the kernel
is used, and without a compiler or on a mismatch the pure path is used alone.
"""
