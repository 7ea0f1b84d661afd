"""Migrates the state of a job to the changed job, by a declaration."""
