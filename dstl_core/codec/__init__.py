"""Converts bytes to model values and back. This package does no I/O: it opens no path."""
