"""Reads RocksDB's table files (SST)."""
