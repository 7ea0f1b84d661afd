"""The Dagster plugin."""
