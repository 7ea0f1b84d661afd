"""Columns and sections, for both reading and writing."""
