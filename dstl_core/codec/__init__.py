"""Bytes to model and back, without I/O: nothing here opens a path."""
