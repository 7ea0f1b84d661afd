"""Snapshots from snapshots: rename, remove, split, merge, rescale; and what a job would restore."""
