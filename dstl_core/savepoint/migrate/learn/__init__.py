"""Learns what changed between two jobs, from their savepoints and compiled plans."""
