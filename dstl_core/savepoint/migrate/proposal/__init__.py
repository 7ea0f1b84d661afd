"""Proposes the declaration of a migration from the savepoints and compiled plans of two jobs."""
