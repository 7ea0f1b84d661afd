"""Pipelines: their store, assets, epochs, jobs, schedules."""
