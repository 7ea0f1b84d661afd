"""Compiled loops over raw bytes: the instructions they run, and memory that they may touch."""
