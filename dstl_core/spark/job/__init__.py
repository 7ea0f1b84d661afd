"""Stateful jobs: epochs, checkpoints, materialization."""
