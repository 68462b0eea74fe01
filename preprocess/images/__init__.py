"""From the string that names an image to its patches: reference, decode, Kimi arithmetic."""
