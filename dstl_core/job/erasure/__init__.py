"""Erases keys from all that a pipeline keeps."""
