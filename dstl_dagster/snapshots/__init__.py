"""Savepoints and rewritten savepoints as assets."""
