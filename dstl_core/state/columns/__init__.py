"""Keyed state as Arrow columns: the store of functions on columns, and the encoder of sections."""
