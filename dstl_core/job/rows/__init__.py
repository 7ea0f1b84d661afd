"""Rows of a batch: where they wait, and the files that they come from."""
