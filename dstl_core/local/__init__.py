"""Runs jobs in one process, without Spark and without Java."""
