"""Batches of keys, and their values as Python objects while the rows of a batch are applied."""
