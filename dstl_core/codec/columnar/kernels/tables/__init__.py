"""Kernels that read, merge, sort and write RocksDB's table files."""
