"""Bytes in, tensors out: references, image decode, Kimi arithmetic, tokenisation, workers."""
