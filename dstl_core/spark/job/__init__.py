"""Stateful jobs: epochs, checkpoints, materialization and savepoints."""
