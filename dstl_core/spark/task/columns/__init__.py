"""Subtasks with value state in columns."""
