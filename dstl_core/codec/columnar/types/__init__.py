"""Layouts of Flink types as Arrow columns, compiled to programs for the kernels."""
