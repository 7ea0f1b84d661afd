"""Keyed state and operator state: descriptors, backends, changelog, timers, restore.

The public names are in ``dstl_core``.
"""
