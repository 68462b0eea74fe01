"""Decides and supervises: sources, hardware, resolve, serve, the command line."""
