"""Completed checkpoints: metadata, commit records, retention, deletion."""
