"""Compares two snapshots."""
