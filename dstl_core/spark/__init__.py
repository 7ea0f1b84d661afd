"""Savepoints and changelogs as DataFrames, and stateful jobs, on PySpark.

The public names are in ``dstl_core``.
"""
