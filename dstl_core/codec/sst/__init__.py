"""RocksDB's table files."""
