"""Columns and sections that reading and writing share."""
