"""Converts changelog records to columns and back."""
