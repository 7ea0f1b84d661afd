"""Leaves entries of keyed state out of a savepoint."""
