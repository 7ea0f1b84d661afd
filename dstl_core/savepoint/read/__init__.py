"""Reads snapshots: operators, states, entries, columns."""
