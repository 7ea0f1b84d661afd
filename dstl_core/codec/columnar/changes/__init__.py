"""Changelog records as columns, and back."""
