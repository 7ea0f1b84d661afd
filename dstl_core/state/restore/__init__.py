"""Restores state from handles of the canonical, heap, RocksDB and changelog forms."""
