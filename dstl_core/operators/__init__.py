"""Operators run users' functions on state and take part in checkpoints."""
