"""Snapshot files from rows and columns."""
