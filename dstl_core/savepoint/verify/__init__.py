"""Verifies a snapshot, and reads back what was written."""
