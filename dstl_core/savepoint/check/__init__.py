"""Verification, comparison and garbage collection of snapshots."""
