"""Converts keyed state to columns and back: sections, spans, keys, key groups."""
