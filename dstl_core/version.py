"""The version of dstl."""

__version__ = "0.1.0"
