"""Verifies and compares snapshots, and deletes unreferenced files."""
