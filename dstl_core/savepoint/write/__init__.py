"""Writes snapshot files from rows and columns."""
