"""Example projects."""
