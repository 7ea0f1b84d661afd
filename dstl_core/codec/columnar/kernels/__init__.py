"""Compiled loops over raw bytes: their instructions, and checked access to memory."""
