"""Tables of state in memory or RocksDB: descriptors, tables, types and their evolution."""
