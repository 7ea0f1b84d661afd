"""Builds the state of new operators from rows of any engine."""
