"""State from handles: canonical, heap, RocksDB and changelog forms."""
