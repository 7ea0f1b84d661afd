"""Bytes in and out of file systems: locations, file IO, publish-once, the commit log."""
