"""Kernels that convert values of Kryo 2.24."""
