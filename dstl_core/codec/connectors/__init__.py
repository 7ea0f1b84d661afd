"""What sources and sinks keep as opaque bytes: positions of splits, commits that are pending.

Flink knows these states as ``byte[]``. Each payload has a version of its own; a decoder takes the
versions that it knows and has to consume every byte.
"""
