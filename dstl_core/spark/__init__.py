"""Savepoints and changelogs as DataFrames, and stateful jobs, on PySpark."""
