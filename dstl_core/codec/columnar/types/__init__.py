"""Flink types as layouts of Arrow columns, compiled to programs for the kernels."""
