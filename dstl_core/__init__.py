"""Streaming state as a data asset, in Apache Flink's own on-disk formats."""

__version__ = "0.1.0"
