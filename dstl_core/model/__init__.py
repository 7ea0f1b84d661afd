"""Frozen values: ids, key groups, sequence numbers, changes, handles, checkpoints. No I/O."""
