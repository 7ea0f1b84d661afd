"""Operators in files of RocksDB by state: other names, parts, and states that are written anew."""
