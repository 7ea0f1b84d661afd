"""Snapshots as catalogs: operators, states, entries, columns."""
