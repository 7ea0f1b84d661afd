"""Keyed state as columns, and back: sections, spans, keys, key groups."""
