"""Edits snapshots: rename, remove, split, merge, rescale; and predicts a restore."""
